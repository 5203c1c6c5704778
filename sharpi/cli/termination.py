"""Turns SIGTERM into an exception, so that engines close and write their records."""

import signal
from types import FrameType
from typing import NoReturn

from sharpi.cli import exit_codes


def raise_on_sigterm() -> None:
    """Makes SIGTERM raise SystemExit; only the main thread may call this."""
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Exits once only: `timeout` signals the process and then its group, while it is closing."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(exit_codes.TERMINATED)
