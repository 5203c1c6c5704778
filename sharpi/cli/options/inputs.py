"""Finds the model and the prompt: from arguments, flags, variables or the demo.

An explicit source overrides a variable; two sources of one kind are refused with both names.
"""

import os
from pathlib import Path

import typer
from msgspec import Struct

from sharpi.cli.options.model_path import model_path
from sharpi.cli.options.option_sources import OptionSources
from sharpi.cli.options.source_text import STDIN, text_of_argument, text_of_file, text_of_stdin
from sharpi.cli.output.terminal import note, stdin_is_terminal
from sharpi.errors import UsageError
from sharpi.resources import demo_model

DEMO_PROMPT = "Once upon a time"
_PROMPT_OPTIONS = ("prompt_text", "prompt_file")


class InputValue(Struct, frozen=True):
    """A value that was given."""

    name: str  # the option's or argument's name for messages
    value: str
    is_explicit: bool = True  # given on the command line rather than by a variable
    is_file: bool = False  # the value is the path of a file


class Inputs(Struct, frozen=True):
    """The model file and the prompt of a command."""

    model: Path
    prompt: str


def find_inputs(context: typer.Context, first: str | None, second: str | None) -> Inputs:
    """Sorts the arguments [MODEL] [PROMPT] and the options -m, -p and -f into model and prompt."""
    model_option = _option(context, "model_file")
    prompt_options = [_option(context, name) for name in _PROMPT_OPTIONS]
    if first is not None and second is None and not _is_model(first, model_option, prompt_options):
        first, second = None, first
    model = _the_one([_argument("MODEL", first), model_option], "model")
    prompt = _the_one([_argument("PROMPT", second), *prompt_options], "prompt")
    if model is None and second is not None:
        note(f"no MODEL among the arguments: the demo model continues {second!r}")
    path = model_path(model.value) if model else demo_model()
    return Inputs(path, _read(prompt) if prompt else _default_prompt(path))


def find_model(context: typer.Context, argument: str | None) -> Path:
    """Returns the model of a command without PROMPT."""
    model = _the_one([_argument("MODEL", argument), _option(context, "model_file")], "model")
    return model_path(model.value) if model else demo_model()


def _argument(name: str, value: str | None) -> InputValue | None:
    return None if value is None else InputValue(name, value)


def _option(context: typer.Context, parameter: str) -> InputValue | None:
    """Returns the value of the option `parameter`, if a flag or a variable gave it."""
    value, sources = context.params.get(parameter), OptionSources(context)
    if value is None:
        return None
    is_file = parameter == "prompt_file"
    return InputValue(sources.name(parameter), value, sources.by_flag(parameter), is_file)


def _the_one(sources: list[InputValue | None], subject: str) -> InputValue | None:
    named = [source for source in sources if source is not None]
    best = [source for source in named if source.is_explicit] or named
    if len(best) > 1:
        raise UsageError(f"{best[0].name} and {best[1].name} both give the {subject}; keep one")
    return best[0] if best else None


def _is_model(
    text: str, model_option: InputValue | None, prompt_options: list[InputValue | None]
) -> bool:
    """Returns whether a lone argument is MODEL: a path, or beside a prompt given elsewhere."""
    if _looks_like_path(text):
        return True
    if model_option is not None and model_option.is_explicit:
        return False
    return any(option is not None and option.is_explicit for option in prompt_options)


def _looks_like_path(text: str) -> bool:
    if text.lower().endswith(".gguf"):
        return True
    has_folder = os.sep in text and not any(letter.isspace() for letter in text)
    return has_folder or Path(text).exists()


def _read(prompt: InputValue) -> str:
    if prompt.is_file or prompt.value == STDIN:
        return _without_last_newline(text_of_file(prompt.value))
    return text_of_argument(prompt.value, prompt.name)


def _default_prompt(model: Path) -> str:
    """Returns the prompt if none was given: the demo's own, or piped stdin for other models."""
    if model == demo_model():
        note(f"no prompt given: the demo model continues {DEMO_PROMPT!r}")
        return DEMO_PROMPT
    if stdin_is_terminal():
        raise UsageError("no prompt; give one as PROMPT, with -p or -f, or use `sharpi chat`")
    return _without_last_newline(text_of_stdin())


def _without_last_newline(text: str) -> str:
    """Removes the last newline, which editors and `echo` add to a text."""
    return text.removesuffix("\n").removesuffix("\r")
