"""Chooses how a chat reads input: with a terminal's editor, or line by line."""

import sys
from contextlib import suppress

from sharpi.cli.chat.history_file import HistoryFile, history_path
from sharpi.cli.chat.line_input import Input, LineInput
from sharpi.cli.output.terminal import can_draw, stdin_is_terminal
from sharpi.cli.termination import exiting_on_ctrl_c


def open_input() -> Input:
    """Returns the editor if stdin and stdout are a terminal that can draw, else line input."""
    if stdin_is_terminal() and can_draw(sys.stdout):
        with suppress(ImportError), exiting_on_ctrl_c():
            from sharpi.cli.chat.terminal_input import TerminalInput

            return TerminalInput(HistoryFile(history_path()))
    return LineInput()
