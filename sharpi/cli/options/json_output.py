"""The option --json, for output that programs read."""

from typing import Annotated

from sharpi.cli.options.option import option

JsonOption = Annotated[
    bool, option("--json", "Print one JSON object instead of text for people.", is_everyday=True)
]
