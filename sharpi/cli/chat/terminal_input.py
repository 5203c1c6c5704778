"""The editor of a chat at a terminal: prompt_toolkit with the keys that users expect.

Enter sends, Alt-Enter and Ctrl-J begin a new line, a paste is one text, Ctrl-R searches the
history and Tab completes. A backslash at the end of a line and open quotes continue a message, as
in a pipe.
"""

import atexit
import os
import shutil
import sys
import termios
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import is_searching
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style

from sharpi.cli.chat.chat_settings import setting_names
from sharpi.cli.chat.line_input import CONTINUATION, PROMPT
from sharpi.cli.chat.slash_commands import ALIASES, NAMES
from sharpi.cli.log.log_store import make_private_folder, state_folder
from sharpi.cli.model_path import models_beginning
from sharpi.cli.output.terminal import is_yes
from sharpi.cli.termination import exit_handlers

_WITH_FILES = ("/load", "/save", "/file")


class ChatCompleter(Completer):
    """A prompt_toolkit completer for lines that begin with a slash; it ignores other lines."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        """Yields completions of the word before the cursor."""
        text = document.text_before_cursor.lstrip()
        name, blank, rest = text.partition(" ")
        if not name.startswith("/") or name.startswith("//"):
            return
        if not blank:
            yield from _as_completions(name, [*NAMES, *ALIASES])
        elif name in _WITH_FILES:
            yield from self._paths.get_completions(Document(rest), event)
        elif name == "/model":
            yield from _as_completions(rest, models_beginning(rest))
        elif name == "/set":
            yield from _as_completions(rest, setting_names())


def _as_completions(word: str, choices: Iterable[str]) -> Iterable[Completion]:
    for choice in sorted(choices):
        if choice.startswith(word):
            yield Completion(choice, start_position=-len(word))


_LOCAL, _INPUT = 3, 0  # indices of a terminal's flags


def quiet_terminal() -> None:
    """Switches off echo and the translation of Enter to a newline, until the process ends."""
    with suppress(termios.error, OSError):
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        flags = termios.tcgetattr(descriptor)
        flags[_LOCAL] &= ~termios.ECHO
        flags[_INPUT] &= ~termios.ICRNL
        termios.tcsetattr(descriptor, termios.TCSANOW, flags)
        restore = partial(_restore, descriptor, before)
        atexit.register(restore)
        exit_handlers.append(restore)


def _restore(descriptor: int, flags: list[int | list[bytes | int]]) -> None:
    with suppress(termios.error, OSError):
        termios.tcsetattr(descriptor, termios.TCSADRAIN, flags)


_QUOTES = '"""'
_STYLE = Style.from_dict({"bottom-toolbar": "noreverse fg:ansibrightblack"})


class TerminalInput:
    """Reads messages with an editor, whose bottom line shows the result of `status`."""

    def __init__(self) -> None:
        quiet_terminal()
        self.is_interactive = True
        self.status: Callable[[], str] = str
        self.has_editor = True
        self._output = _Screen(sys.stdout, _size, term=os.environ.get("TERM"), enable_cpr=False)
        completer: Completer = ChatCompleter()
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=_continuation,
            history=_History(history_path()),
            completer=completer,
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            enable_suspend=True,
            key_bindings=_keys(),
            bottom_toolbar=lambda: self.status(),
            style=_STYLE,
            output=self._output,
        )

    def read(self, initial_text: str = "") -> str | None:
        try:
            return _without_quotes(self._session.prompt(default=initial_text))
        except (EOFError, OSError):  # OSError: the terminal was closed
            return None

    def confirm(self, question: str) -> bool:
        try:
            session: PromptSession[str] = PromptSession(output=self._output)
            return is_yes(session.prompt(f"{question} [y/N] "))
        except (EOFError, KeyboardInterrupt):
            return False


class _Screen(Vt100_Output):
    """Terminal output that never queries the cursor's position: some terminals answer late."""

    def get_rows_below_cursor_position(self) -> int:
        return 1  # further rows are claimed as they are needed


def history_path() -> Path:
    """Returns the file of typed messages in sharpi's state folder."""
    return (state_folder() or Path.home()) / "history"


class _History(FileHistory):
    """What was typed in all chats; errors in reading or writing the file are ignored."""

    def load_history_strings(self) -> Iterable[str]:
        with suppress(OSError):
            yield from super().load_history_strings()

    def store_string(self, string: str) -> None:
        path = Path(os.fsdecode(self.filename))
        with suppress(OSError, UnicodeEncodeError):
            make_private_folder(path.parent)
            path.touch(mode=0o600)
            super().store_string(string)


def _continuation(width: int, line: int, num_wraps: int) -> str:
    """Returns the prompt before a message's later line; empty if the terminal only wrapped it."""
    return "" if num_wraps else CONTINUATION


def _size() -> Size:
    columns, rows = shutil.get_terminal_size()
    return Size(rows=rows, columns=columns)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("enter", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if _is_in_block(buffer.text):
            buffer.insert_text("\n")
        elif buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    return keys


def _is_in_block(text: str) -> bool:
    """Returns whether `text` begins with three double quotes and no line ends with three."""
    if not text.lstrip().startswith(_QUOTES):
        return False
    rest = text.lstrip().removeprefix(_QUOTES)
    return not any(line.rstrip().endswith(_QUOTES) for line in rest.split("\n"))


def _without_quotes(text: str) -> str:
    """Returns the message, without the three double quotes around a block."""
    if not text.lstrip().startswith(_QUOTES) or _is_in_block(text):
        return text
    return text.strip().removeprefix(_QUOTES).removesuffix(_QUOTES).strip("\n")
