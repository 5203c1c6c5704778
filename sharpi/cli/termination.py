"""SIGTERM as an exception, so that engines close and what they recorded is written."""

import signal
from types import FrameType
from typing import NoReturn

from sharpi.cli import exit_codes


def raise_on_sigterm() -> None:
    """From now on SIGTERM raises SystemExit; only the main thread may call this."""
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Once only: `timeout` signals the process and then its group, in the midst of the closing."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(exit_codes.TERMINATED)
