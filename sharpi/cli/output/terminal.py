"""Prints notes and errors beside the answer, and tells whether styles may be used.

Everything here goes to stderr; stdout has only the answer.
"""

import os
import sys
from typing import TextIO

DIM, NORMAL = "\x1b[2m", "\x1b[22m"


def say(text: str) -> None:
    """Prints one line to stderr."""
    print(text, file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Prints a note about a decision, or about something that could not be done as requested."""
    say(f"note: {text}")


def complain(text: str) -> None:
    """Prints an error on one line, even if its text has several."""
    say("error: " + " ".join(text.split()))


def styled(stream: TextIO) -> bool:
    """Returns whether escape codes may go to `stream`: a capable terminal, and no NO_COLOR."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def stdin_is_terminal() -> bool:
    """Returns whether the user types the input at a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()
