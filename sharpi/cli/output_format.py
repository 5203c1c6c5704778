"""The schema or grammar that an answer must match, read from options and compiled for a model."""

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sharpi.cli.option_sources import OptionSources
from sharpi.cli.output.terminal import print_note
from sharpi.cli.source_text import text_of_file
from sharpi.errors import GrammarError, UsageError
from sharpi.settings.conversation import ConstraintOptions

if TYPE_CHECKING:
    from sharpi.constraints.constraint import Constraint
    from sharpi.constraints.grammar_constraint import GrammarConstraint
    from sharpi.constraints.grammars import Grammars
    from sharpi.tokenizer.tokenizer import Tokenizer

_NO_LIBRARY = (
    "structured output needs the package llguidance; install it with pip install llguidance"
)


class OutputFormat(Struct, frozen=True):
    """The schema or grammar that an answer must match, not compiled yet."""

    kind: str  # the method of Grammars that compiles it
    value: Any = None  # the schema or the grammar
    source: str = ""  # the file of the schema or grammar


class ConstrainedAnswers:
    """Builds the constraint of each answer from one schema or grammar, for one tokenizer."""

    def __init__(self, output_format: OutputFormat, tokenizer: "Tokenizer") -> None:
        self._output_format, self._tokenizer = output_format, tokenizer
        self._grammars = _grammars(tokenizer)
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
        output_format, grammars = self._output_format, self._grammars
        try:
            match output_format.kind:
                case "json_schema":
                    return grammars.json_schema(output_format.value)
                case "gbnf":
                    return grammars.gbnf(output_format.value)
                case "lark":
                    return grammars.lark(output_format.value)
            return grammars.json_object()
        except GrammarError as error:
            raise GrammarError(
                f"{output_format.source}: {error}" if output_format.source else str(error)
            ) from error


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
        return OutputFormat(option)
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


def _grammars(tokenizer: "Tokenizer") -> "Grammars":
    try:
        from sharpi.constraints.grammars import Grammars
    except ImportError as error:
        raise UsageError(_NO_LIBRARY) from error
    return Grammars(tokenizer)
