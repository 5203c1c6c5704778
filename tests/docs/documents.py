"""The documents that a user reads, and the commands in their fenced blocks."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [README, *PAGES]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHELLS = ("sh", "console")


def name_of(path: Path) -> str:
    """The path in the repository."""
    return str(path.relative_to(ROOT))


def commands(path: Path) -> list[str]:
    """The commands of a document, in order; a command may have several lines."""
    blocks = [match for match in _FENCE.findall(path.read_text("utf-8")) if match[0] in _SHELLS]
    return [command for language, text in blocks for command in _commands(language, text)]


def _commands(language: str, text: str) -> list[str]:
    if language == "console":  # what is typed is behind a dollar sign, the rest is output
        return [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    found = [""]
    for line in text.splitlines():
        found[-1] += line
        found[-1:] = [found[-1] + "\n"] if _goes_on(found[-1]) else [found[-1], ""]
    return [command for command in found if command]


def _goes_on(command: str) -> bool:
    """Returns whether the next line belongs to the same command, because a quote is open."""
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return False


def prose(path: Path) -> str:
    """A document without its code, and without its generated tables."""
    text = re.sub(r"<!-- generated.*?<!-- end -->", "", path.read_text("utf-8"), flags=re.DOTALL)
    return _FENCE.sub("", text)
