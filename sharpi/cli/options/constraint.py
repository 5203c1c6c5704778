"""The options for structured output: a JSON schema, any JSON object or a grammar."""

from typing import Annotated, ClassVar

import click
from msgspec import Struct

from sharpi.cli.options.option import option
from sharpi.cli.options.option_sources import OptionSources
from sharpi.cli.options.output_format import OutputFormat, read_format

_NAMES = ("json_schema", "json_object", "grammar")


class ConstraintOptions(Struct, frozen=True):
    """The schema or grammar that every answer must match."""

    heading: ClassVar = "Structured output"

    json_schema: Annotated[
        str | None,
        option(
            "--json-schema",
            "Answer in JSON that follows the schema in FILE.",
            "FILE",
            is_everyday=True,
        ),
    ] = None
    json_object: Annotated[bool, option("--json-object", "Answer with a JSON object.")] = False
    grammar: Annotated[
        str | None,
        option(
            "--grammar",
            "Follow the grammar in FILE: GBNF, or Lark in llguidance's dialect.",
            "FILE",
        ),
    ] = None

    def output_format(self, context: click.Context) -> OutputFormat | None:
        """Reads and returns the schema or grammar; None if no option requires one.

        Flags override environment variables. Raises UsageError for contradictory options.
        """
        sources = OptionSources(context)
        asked = [name for name in _NAMES if getattr(self, name)]
        best = [name for name in asked if sources.by_flag(name)] or asked
        if len(best) > 1:
            sources.raise_conflict(best[0], best[1], "an answer has one format")
        return read_format(best[0], getattr(self, best[0])) if best else None
