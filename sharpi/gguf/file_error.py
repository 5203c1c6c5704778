"""Formats an error about a file as one printable line: the path, then what is wrong."""

from pathlib import Path

from sharpi.errors import ModelFileError


def file_error(path: Path, what: str) -> ModelFileError:
    """Returns an error with the message `path: what`, on one line.

    Unprintable characters are replaced, so that text from the file can neither break the line nor
    control the terminal.
    """
    return ModelFileError(printable(f"{path}: {what}"))


def printable(text: str) -> str:
    """Replaces control characters, newlines and bytes that were not UTF-8 by U+FFFD."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
