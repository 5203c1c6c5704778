"""Writes a conversation to the log after each message; if that fails, prints one note.

sqlite3 is imported at the first message, so that other commands start without it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sharpi.cli.log.log_store import (
    KeptConversation,
    LogStore,
    Message,
    is_switched_off,
    log_path,
)
from sharpi.cli.output.terminal import print_note
from sharpi.cli.termination import uninterrupted
from sharpi.errors import SharpiError, UsageError

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
