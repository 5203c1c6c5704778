"""Prints notes and errors to stderr, and tells what a terminal supports.

The answer goes to stdout, so that it can be redirected without them.
"""

import contextlib
import os
import shutil
import sys
from typing import TextIO

DIM, NORMAL = "\x1b[2m", "\x1b[22m"
_CONTROLS = (*range(32), *range(127, 160))
_WITHOUT_CONTROLS = {code: None for code in _CONTROLS if chr(code) not in "\t\n"}


def print_stderr(text: str, indent: int = 0) -> None:
    """Prints a text to stderr; errors of a closed terminal are ignored.

    Wrapped lines are indented by `indent` spaces.
    """
    with contextlib.suppress(OSError):
        print(fitted(text, sys.stderr, indent), file=sys.stderr, flush=True)


def fitted(text: str, stream: TextIO, indent: int = 0) -> str:
    """Wraps text between words to the width of the terminal; other streams leave it unchanged.

    Wrapped lines are indented by `indent` spaces.
    """
    columns = shutil.get_terminal_size().columns
    if not stream.isatty() or max(map(len, text.split("\n"))) <= columns:
        return text
    from textwrap import TextWrapper

    wrapper = TextWrapper(
        columns,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(map(wrapper.fill, text.split("\n")))


def print_note(text: str) -> None:
    """Prints a note about a decision, or about something that could not be done as requested."""
    print_stderr(f"note: {text}")


def print_error(text: str) -> None:
    """Prints an error on one line, even if its text has several lines."""
    print_stderr("error: " + " ".join(text.split()))


def strip_controls(text: str) -> str:
    """Removes control characters, except tab and newline, from a text for the terminal."""
    return text.translate(_WITHOUT_CONTROLS)


def can_draw(stream: TextIO) -> bool:
    """Returns whether `stream` is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def supports_styles(stream: TextIO) -> bool:
    """Returns whether escape codes may go to `stream`: a capable terminal without NO_COLOR."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def stdin_is_terminal() -> bool:
    """Returns whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()
