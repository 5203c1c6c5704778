"""What a person at a terminal sees beside the answer: notes, and whether styles may be used.

Everything here goes to stderr; stdout carries the answer and nothing else.
"""

import os
import sys
from typing import TextIO

DIM, NORMAL = "\x1b[2m", "\x1b[22m"


def say(text: str) -> None:
    """One line for the person, on stderr."""
    print(text, file=sys.stderr, flush=True)


def note(text: str) -> None:
    """A line about something that was decided or could not be done as asked."""
    say(f"note: {text}")


def complain(text: str) -> None:
    """An error on one line, whatever the text brings along."""
    say("error: " + " ".join(text.split()))


def styled(stream: TextIO) -> bool:
    """Whether escape codes may go to `stream`: a terminal that can, and no NO_COLOR."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def stdin_is_terminal() -> bool:
    """Whether a person types the input."""
    return sys.stdin is not None and sys.stdin.isatty()
