"""`sharpi inspect`."""

from pathlib import Path
from typing import Annotated

import typer


def inspect(model: Annotated[Path, typer.Argument(metavar="MODEL", help="A GGUF file.")]) -> None:
    """Show what a file holds."""
