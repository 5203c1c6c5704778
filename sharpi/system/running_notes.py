"""Prints notes of a running engine to stderr; delays them while an answer is being printed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_waiting: list[str] | None = None


def print_running_note(text: str) -> None:
    """Prints a note now, or after the answer that is being printed to a terminal."""
    if _waiting is None:
        _print(text)
    else:
        _waiting.append(text)


@contextmanager
def notes_after_answer() -> Iterator[None]:
    """Delays notes to the end of the context, if stdout is a terminal.

    Otherwise they would appear in the middle of a line of the answer.
    """
    global _waiting
    if not sys.stdout.isatty():
        yield
        return
    waiting = _waiting = list[str]()
    try:
        yield
    finally:
        _waiting = None
        for text in waiting:
            _print(text)


def _print(text: str) -> None:
    with suppress(OSError):  # the terminal may have been closed
        print(f"note: {text}", file=sys.stderr, flush=True)
