"""Finds the model and the prompt in arguments, flags and variables, and reads texts as UTF-8.

Without a model, the demo model is used. An argument or a flag overrides an environment variable.
Two arguments or flags that both name a model, or both a prompt, raise UsageError.
"""

import os
import re
import select
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from msgspec import Struct

from sharpi.cli.model_path import (
    MissingModelError,
    fetch_missing,
    find_name,
    looks_like_path,
    model_path,
    unknown_model,
)
from sharpi.cli.output.terminal import print_note, stdin_is_terminal
from sharpi.cli.run_config import OptionSources
from sharpi.errors import UsageError
from sharpi.resources import demo_model
from sharpi.settings.option import Option
from sharpi.system.files import read_bounded, read_rest

STDIN = "-"
_NUMPY = b"\x93NUMPY"


def text_of_argument(text: str, name: str) -> str:
    """Returns `text` unchanged; raises UsageError, which names `name`, if it is not UTF-8."""
    return _decoded(text.encode("utf-8", "surrogateescape"), name)


def text_of_file(path: str) -> str:
    """Returns the text of a file, or of stdin for `-`; raises UsageError if it cannot be read."""
    name = "standard input" if path == STDIN else path
    try:
        data = read_rest(sys.stdin.buffer, name) if path == STDIN else read_bounded(Path(path))
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from error
    return _decoded(data, name)


def _decoded(data: bytes, name: str) -> str:
    if data.startswith(_NUMPY):
        raise UsageError(f"{name} is a NumPy array, not text; `sharpi logits --tokens` takes ids")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not UTF-8 text: byte 0x{data[error.start]:02x} at offset {error.start}"
        ) from error


LONGEST_WAIT_SECONDS = 2.0
_WAITING = "waiting for standard input, which comes before the prompt; `</dev/null` leaves it out"


def piped_text() -> str:
    """Returns the text on stdin, empty at a terminal or device; UsageError if it is not UTF-8."""
    if sys.stdin is None or sys.stdin.closed or stdin_is_terminal():
        return ""
    with suppress(OSError, ValueError):  # it has no descriptor
        descriptor = sys.stdin.fileno()
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):  # /dev/null, or one that never ends
            return ""
        if not select.select([descriptor], [], [], LONGEST_WAIT_SECONDS)[0]:
            print_note(_WAITING)
    return text_of_file(STDIN)


DEMO_PROMPT = "Once upon a time"
_PROMPT_OPTIONS = ("prompt_text", "prompt_file")
_BETWEEN = "\n\n"  # between standard input and the prompt
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]*")  # a word that may be the name of a model


class InputValue(Struct, frozen=True):
    """The value of an option or argument, with its source."""

    name: str  # the option's or argument's name in messages
    value: str
    is_explicit: bool = True  # given on the command line rather than by a variable
    is_file: bool = False  # the value is the path of a file


def find_inputs(
    context: typer.Context, first: str | None, rest: Sequence[str] | None = None
) -> tuple[Path, str]:
    """Returns the model and the prompt from the arguments [MODEL] [PROMPT...] and -m, -p and -f.

    `first` and `rest` are the arguments; the words of a prompt are joined with spaces.
    """
    words = [] if first is None else [first, *(rest or ())]
    model_option = _option(context, "model_file")
    prompt_options = [_option(context, name) for name in _PROMPT_OPTIONS]
    begins_with_model = bool(words) and _is_model(words, model_option, prompt_options)
    named = words[0] if begins_with_model else None
    text = " ".join(words[begins_with_model:]) if words[begins_with_model:] else None
    model = _the_one([_argument("MODEL", named), model_option], "model")
    prompt = _the_one([_argument("PROMPT", text), *prompt_options], "prompt")
    if model is None and text is not None:
        what = "standard input" if text == STDIN else repr(text)
        print_note(f"no MODEL among the arguments: the demo model continues {what}")
    path = _available(context, model.value) if model else demo_model()
    return path, _whole(prompt) if prompt else _default_prompt(path)


def find_model(context: typer.Context, argument: str | None) -> Path:
    """Returns the model's file, from MODEL or -m, for a command without a PROMPT argument."""
    model = _the_one([_argument("MODEL", argument), _option(context, "model_file")], "model")
    return _available(context, model.value) if model else demo_model()


def _available(context: typer.Context, text: str) -> Path:
    """Returns the file of the model `text`; downloads it if needed, with --pull or after asking."""
    try:
        return model_path(text)
    except MissingModelError as error:
        fetch_missing(context, error)
        return model_path(text)


def _argument(name: str, value: str | None) -> InputValue | None:
    return None if value is None else InputValue(name, value)


def _option(context: typer.Context, parameter: str) -> InputValue | None:
    """Returns the value of the option `parameter`; None if neither flag nor variable set it."""
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
    words: Sequence[str], model_option: InputValue | None, prompt_options: list[InputValue | None]
) -> bool:
    """Returns whether the first word is MODEL, not PROMPT; raises UsageError if it may be both."""
    first = words[0]
    if first == STDIN:
        return False
    if looks_like_path(first) or find_name(first) is not None:
        return True
    if any(option is not None and option.is_explicit for option in prompt_options):
        return model_option is None or not model_option.is_explicit
    if model_option is not None:
        return False
    if not first:
        raise UsageError("the argument is empty; name a model, or write a prompt in quotes")
    if _NAME.fullmatch(first):
        raise unknown_model(first, prompt=" ".join(words))
    return False


def _whole(prompt: InputValue) -> str:
    """Returns the prompt's text, after the text of standard input if there is any."""
    if prompt.value == STDIN:
        return _without_last_newline(text_of_file(STDIN)) or _refuse_empty()
    before = _without_last_newline(piped_text())
    text = (
        _without_last_newline(text_of_file(prompt.value))
        if prompt.is_file
        else text_of_argument(prompt.value, prompt.name)
    )
    return f"{before}{_BETWEEN}{text}" if before else text


def _default_prompt(model: Path) -> str:
    """Returns the text of stdin, or the demo model's prompt; raises UsageError if there is none."""
    if stdin_is_terminal() and model != demo_model():
        raise UsageError("no prompt; give one as PROMPT, with -p or -f, or use `sharpi chat`")
    if text := _without_last_newline(piped_text()):
        return text
    if model != demo_model():
        _refuse_empty()
    print_note(f"no prompt given: the demo model continues {DEMO_PROMPT!r}")
    return DEMO_PROMPT


def _refuse_empty() -> NoReturn:
    raise UsageError("no prompt: standard input is empty; give one as PROMPT, with -p or -f")


def _without_last_newline(text: str) -> str:
    """Removes the last newline, which editors and `echo` add to a text."""
    return text.removesuffix("\n").removesuffix("\r")


JsonOption = Annotated[bool, Option("--json", "Print one JSON object instead of text for people.")]
NoLogOption = Annotated[
    bool, Option("--no-log", "Do not keep this conversation; see `sharpi log`.")
]
DisplayPromptOption = Annotated[
    bool,
    Option(
        "--display-prompt/--no-display-prompt",
        "Print the prompt before its continuation, where no chat template is used.",
    ),
]
ModelArgument = Annotated[
    str | None,
    Option("MODEL", "A GGUF file, or a name; see `sharpi models`.", default="the demo model"),
]
ModelOption = Annotated[
    str | None, Option("-m --model FILE", "The GGUF file or name, instead of MODEL.")
]
PromptOption = Annotated[str | None, Option("-p --prompt TEXT", "The prompt; '-' reads stdin.")]
PullOption = Annotated[
    bool, Option("--pull", "Fetch the model from the hub if it is missing, without asking.")
]
PromptFileOption = Annotated[
    str | None,
    Option("-f --file FILE", "The prompt is in FILE ('-': stdin), without its last newline."),
]
