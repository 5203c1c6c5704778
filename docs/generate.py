"""Generates the tables in docs/ from the code, such as options in flags.md and specs in models.md.

`make docs` runs this script. A table is between `<!-- generated: NAME -->` and `<!-- end -->`; the
text around the tables is written by hand.
"""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from flag_tables import commands, other_flags, run_flags, serve_flags
from markdown_table import table

FOLDER = Path(__file__).parent
SPECS = FOLDER.parent / "models"

_PLACE = re.compile(r"(?<=<!-- generated: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """Returns a page's text with each of its tables generated again."""
    return _PLACE.sub(lambda place: f"{place[1]}{place[2]}{TABLES[place[1]]()}", page)


def architectures() -> str:
    """Returns a table with a row for each architecture that a TOML file in models/ describes."""
    rows = map(_architecture_row, sorted(SPECS.glob("*.toml")))
    return table(("architecture", "models", "checked against"), rows)


def _architecture_row(path: Path) -> Sequence[str]:
    docs = tomllib.loads(path.read_text("utf-8"))["docs"]
    return f"`{path.stem}`", docs["models"], docs["checked_against"]


TABLES = {
    "architectures": architectures,
    "commands": commands,
    "run": run_flags,
    "serve": serve_flags,
    "others": other_flags,
}


def write() -> None:
    """Rewrites the pages whose tables are out of date, and prints their paths."""
    for path in sorted(FOLDER.glob("*.md")):
        old = path.read_text("utf-8")
        if (new := filled(old)) != old:
            path.write_text(new, "utf-8")
            print(path.relative_to(FOLDER.parent))


if __name__ == "__main__":
    write()
