"""The prompt of one answer, with or without a chat template, and the form that it must have."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sharpi.cli.inputs import text_of_file
from sharpi.cli.output.terminal import print_note, print_stderr
from sharpi.cli.run_config import OptionSources
from sharpi.errors import GrammarError, UsageError
from sharpi.settings.sampling import ConstraintOptions, ConversationOptions

if TYPE_CHECKING:
    from sharpi.constraints.constraint import Constraint
    from sharpi.constraints.grammar_constraint import GrammarConstraint
    from sharpi.engine.engine import Engine
    from sharpi.tokenizer.tokenizer import Tokenizer


class Prompt(Struct, frozen=True):
    """The prompt of one answer, as text and as token ids."""

    text: str  # as the model receives it
    ids: list[int]  # as the model receives them
    echo: str  # printed before the answer: the text to continue, or "" for a chat


def refuse_contradictions(options: ConversationOptions) -> None:
    """Raises UsageError for options that need a chat template, if --raw disables it."""
    if options.raw and options.system is not None:
        raise UsageError("--raw and --system contradict each other; a raw prompt has no roles")
    if options.raw and options.think is not None:
        raise UsageError("--raw and --think contradict each other; a raw prompt has no template")


def note_useless_options(engine: "Engine", options: ConversationOptions) -> None:
    """Prints a note if --think or --no-think was given but the chat template has no such switch."""
    if options.think is None or engine.chat_format.can_switch_thinking:
        return
    flag = "--think" if options.think else "--no-think"
    print_note(f"{flag} has no effect: this model's chat template has no switch for reasoning")


def has_no_template(engine: "Engine", options: ConversationOptions) -> bool:
    """Returns whether no template is used; raises UsageError for --system if the file has none."""
    if options.raw:
        return True
    has_template = engine.chat_format.kind != "plain"
    if not has_template and options.system is not None:
        raise UsageError("--system: this model has no chat template; put the text in the prompt")
    return not has_template


def whole_prompt(engine: "Engine", text: str, options: ConversationOptions) -> Prompt:
    """Returns the prompt of one question; raises TemplateError or UsageError."""
    if has_no_template(engine, options):
        return Prompt(text, opening_ids(engine.tokenizer, text), echo=text)
    messages = [{"role": "user", "content": text}]
    if options.system is not None:
        messages.insert(0, {"role": "system", "content": options.system})
    rendered = engine.chat_format.render(messages, enable_thinking=options.think)
    return Prompt(rendered, opening_ids(engine.tokenizer, rendered), echo="")


def show_prompt(tokenizer: "Tokenizer", text: str, ids: list[int]) -> None:
    """Prints the prompt as the model receives it, and each of its tokens, to stderr."""
    print_stderr(f"prompt: {text!r}, {len(ids)} tokens")
    for token_id in ids:
        print_stderr(
            f"{token_id:6d} -> {tokenizer.token_bytes(token_id).decode('utf-8', 'replace')!r}"
        )


def opening_ids(tokenizer: "Tokenizer", text: str) -> list[int]:
    """Tokenizes the text at the beginning of a sequence; adds BOS if the vocabulary requires it."""
    return tokenizer.encode(text, add_bos=tokenizer.add_bos, parse_special=True)


class OutputFormat(Struct, frozen=True):
    """The schema or grammar that an answer must match, not compiled yet."""

    kind: str  # the method of Grammars that compiles it
    value: Any = None  # the schema or the grammar
    source: str = ""  # the file of the schema or grammar


class ConstrainedAnswers:
    """Builds the constraint of each answer from one schema or grammar, for one tokenizer."""

    def __init__(self, output_format: OutputFormat, tokenizer: "Tokenizer") -> None:
        from sharpi.constraints.grammars import Grammars

        self._output_format, self._grammars = output_format, Grammars(tokenizer)
        self._newest = self._compiled()
        if self._newest.note:
            print_note(self._newest.note)

    @property
    def is_complete(self) -> bool:
        """True if the newest answer, as far as it is generated, matches its schema or grammar."""
        return self._newest.may_end

    def constraint(self, prompt: str) -> "Constraint":
        """Returns the constraint on the answer to `prompt`, but not on its reasoning."""
        from sharpi.constraints.answer_part import within_answer

        self._newest = self._compiled()
        return within_answer(self._newest, self._grammars, prompt)

    def _compiled(self) -> "GrammarConstraint":
        """Compiles the schema or grammar; raises GrammarError, which names the file."""
        output_format = self._output_format
        compiled: Callable[..., GrammarConstraint] = getattr(self._grammars, output_format.kind)
        try:
            return compiled() if output_format.value is None else compiled(output_format.value)
        except GrammarError as error:
            raise GrammarError(f"{output_format.source}: {error}") from error


def output_format(options: ConstraintOptions, sources: OptionSources) -> OutputFormat | None:
    """Reads and returns the schema or grammar; None if no option requires one.

    Flags override environment variables. Raises UsageError for contradictory options.
    """
    asked = [name for name in options.__struct_fields__ if getattr(options, name)]
    best = [name for name in asked if sources.by_flag(name)] or asked
    if len(best) > 1:
        sources.raise_conflict(best[0], best[1], "an answer has one format")
    return read_format(best[0], getattr(options, best[0])) if best else None


def read_format(option: str, path: Any) -> OutputFormat:
    """Reads the schema or grammar of an option; raises UsageError for an unreadable file."""
    if option == "json_object":
        return OutputFormat(option, source="--json-object")
    text = text_of_file(path)
    if option == "json_schema":
        return OutputFormat(option, _parsed(text, path), path)
    return OutputFormat("gbnf" if _is_gbnf(text, path) else "lark", text, path)


def _is_gbnf(text: str, path: str) -> bool:
    """Returns whether a grammar is GBNF rather than Lark, by the file's suffix or its notation."""
    name = path.lower()
    return name.endswith(".gbnf") or (not name.endswith(".lark") and "::=" in text)


def _parsed(text: str, path: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise UsageError(f"{path}: the JSON schema is nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
