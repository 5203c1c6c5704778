"""Keeps conversations in the log, after each message, and finds those that a chat continues.

sqlite3 is imported at the first message, so that other commands start without it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from sharpi.cli.log.log_store import (
    KeptConversation,
    LogStore,
    Message,
    is_switched_off,
    log_path,
)
from sharpi.cli.output.terminal import print_note, print_stderr, strip_controls
from sharpi.cli.termination import uninterrupted
from sharpi.errors import SharpiError, UsageError
from sharpi.system.files import read_bounded
from sharpi.units import plural

if TYPE_CHECKING:
    from sharpi.engine.engine import Generation


class ConversationLog:
    """Writes one conversation to the log: a new one, or the continuation of `kept`."""

    def __init__(
        self, kind: str, *, is_wanted: bool = True, kept: KeptConversation | None = None
    ) -> None:
        self._kind = kind
        self._path = log_path() if is_wanted and not is_switched_off() else None
        self._store: LogStore | None = None
        self._id = kept.id if kept else None

    def write(self, messages: Sequence[Message], model: Path) -> None:
        """Makes the logged conversation equal to `messages`, and removes it without a question."""
        if self._path is None or (self._id is None and not _has_question(messages)):
            return
        try:
            self._write(self._path, messages, str(model.absolute()))
        except _failures() as error:
            print_note(f"the conversation is not logged: {self._path}: {_reason(error)}")
            self._path = None

    def _write(self, path: Path, messages: Sequence[Message], model: str) -> None:
        if self._store is None:
            self._store = LogStore(path)
        if self._id is not None and not _has_question(messages):
            self._store.remove([self._id])
            self.begin_anew()
            return
        if self._id is None:
            self._id = self._store.begin(self._kind, model)
        self._store.write(self._id, messages, model)

    def begin_anew(self) -> None:
        """Makes the next `write` add a new conversation; the current one stays in the log."""
        self._id = None

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._store is not None:
            self._store.close()
            self._store = None


def kept_conversation(number: int | None) -> KeptConversation:
    """Returns a conversation in the log with its messages; the latest chat if `number` is None.

    Raises UsageError if that conversation does not exist, and SharpiError for an unreadable log.
    """
    with open_log() as store:
        if number is None:
            latest = store.listed(1, "chat")
            if not latest:
                raise UsageError("the log has no chat to continue; `sharpi log` lists what it has")
            number = latest[0].id
        return store.find(number)


@contextmanager
def open_log() -> Iterator[LogStore]:
    """Opens the log and yields it; raises SharpiError if opening or using it fails."""
    import sqlite3

    path = log_path()
    if path is None:
        raise SharpiError("there is no log: neither XDG_STATE_HOME nor HOME is set")
    try:
        with LogStore(path) as store:
            yield store
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise SharpiError(f"cannot use the log {path}: {_reason(error)}") from error


def _has_question(messages: Sequence[Message]) -> bool:
    return any(each["role"] == "user" for each in messages)


def _failures() -> tuple[type[Exception], ...]:
    import sqlite3

    return (sqlite3.Error, OSError, SharpiError)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


@contextmanager
def logged_run(
    generation: "Generation", question: str, system: str | None, model: Path, *, is_wanted: bool
) -> Iterator[None]:
    """Logs question and answer when the block ends, even by an exception, and not earlier."""
    messages = [{"role": "user", "content": question}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    try:
        yield
    finally:
        if generation.text:
            messages.append({"role": "assistant", "content": generation.text})
        with uninterrupted():
            log = ConversationLog("run", is_wanted=is_wanted)
            log.write(messages, model)
            log.close()


class _Turn(Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    content: str


class _Saved(Struct, frozen=True):
    """What a file of a conversation must have; `model` is the path of the model that answered."""

    messages: tuple[_Turn, ...]
    model: Any = None


def read_saved(path: Path) -> tuple[tuple[Message, ...], Path | None]:
    """Reads messages and the model's path, None if it is gone; raises UsageError otherwise."""
    try:
        saved = msgspec.json.decode(read_bounded(path), type=_Saved)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a saved conversation: {error}") from error
    messages = tuple({"role": each.role, "content": each.content} for each in saved.messages)
    is_there = isinstance(saved.model, str) and Path(saved.model).exists()
    return messages, Path(saved.model) if is_there else None


_MOST_MESSAGES = 6
_MOST_LINES = 6  # lines shown of each message, at most
_MARKS = {"user": "> ", "system": "system: ", "assistant": ""}


def show_messages(messages: Sequence[dict[str, str]]) -> None:
    """Prints the last six messages to stderr, and shortens long ones."""
    hidden = len(messages) - _MOST_MESSAGES
    if hidden > 0:
        print_stderr(f"... {plural(hidden, 'earlier message')}")
    for message in messages[-_MOST_MESSAGES:]:
        lines = strip_controls(message["content"]).strip("\n").split("\n")
        print_stderr(_MARKS[message["role"]] + "\n".join(lines[:_MOST_LINES]))
        more = len(lines) - _MOST_LINES
        if more > 0:
            print_stderr(f"... {plural(more, 'more line')}")


class Resumed(Struct, frozen=True):
    """The messages that a chat continues; `kept` is their row of the log, None for a file."""

    messages: tuple[Message, ...]
    model: Path | None  # None if a file names no model, or one that no longer exists
    source: str
    kept: KeptConversation | None = None


def find_resumed(name: str | None) -> Resumed:
    """Returns the conversation with `name`: an id of the log, or else the path of a file.

    Without a name, returns the log's latest chat. Raises UsageError if the conversation does not
    exist.
    """
    if name is None or (name.isascii() and name.isdigit()):
        kept = kept_conversation(None if name is None else int(name))
        return Resumed(kept.messages, Path(kept.model), f"conversation {kept.id}", kept)
    path = Path(name).expanduser()
    if not path.exists():
        raise UsageError(
            f"there is no saved conversation {name}; --resume takes what /save wrote, or an id of"
            " `sharpi log`"
        )
    messages, model = read_saved(path)
    return Resumed(messages, model, name)
