"""How a fault of a file is worded: its path, what is wrong, on one printable line."""

from pathlib import Path

from sharpi.errors import ModelFileError


def file_error(path: Path, what: str) -> ModelFileError:
    """The error to raise; text that came from the file can neither break the line nor steer a
    terminal, because unprintable characters are replaced."""
    return ModelFileError(printable(f"{path}: {what}"))


def printable(text: str) -> str:
    """`text` with U+FFFD for control characters, line ends and bytes that were not UTF-8."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
