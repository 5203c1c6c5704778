"""The log of conversations: an SQLite file that several processes may use at once.

SQLite's `user_version` holds the version of the schema. A file of a later version is not changed.
`sharpi log off` creates a file beside the log; while that file exists, nothing is logged. A process
without a home folder, such as a service, logs nothing.
"""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sharpi.errors import SharpiError, UsageError
from sharpi.system.process import Closing

Message = dict[str, str]


class KeptConversation(Struct, frozen=True):
    """One conversation in the log; `messages` is empty if it comes from `LogStore.listed`."""

    id: int
    kind: str  # "chat" or "run"
    model: str  # the path of the model's file
    started: float  # seconds since 1970
    updated: float
    num_messages: int
    title: str  # the beginning of the first question
    messages: tuple[Message, ...] = ()


_OFF = "log-off"
_LOG = "conversations.sqlite3"


def state_folder() -> Path | None:
    """Returns sharpi's state folder by the XDG base directory rules; None without a home folder."""
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "sharpi"
    home = os.environ.get("HOME")
    return Path(home) / ".local" / "state" / "sharpi" if home else None


def log_path() -> Path | None:
    """Returns the path of the log, even if it does not exist yet; None without a home folder."""
    folder = state_folder()
    return None if folder is None else folder / _LOG


def is_switched_off() -> bool:
    """Returns whether `sharpi log off` is in effect; True without a home folder."""
    folder = state_folder()
    return folder is None or (folder / _OFF).exists()


def switch(*, on: bool) -> None:
    """Switches the log on or off for all later processes; raises OSError."""
    folder = state_folder()
    if folder is None:
        raise FileNotFoundError("neither XDG_STATE_HOME nor HOME is set")
    if on:
        (folder / _OFF).unlink(missing_ok=True)
        return
    make_private_folder(folder)
    (folder / _OFF).touch(mode=0o600)


def make_private_folder(folder: Path) -> None:
    """Creates a folder that only its owner can access, unless it exists; raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


SCHEMA_VERSION = 1
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS conversations (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL,
  model TEXT NOT NULL,
  started REAL NOT NULL,
  updated REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS messages (
  conversation INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  role TEXT NOT NULL,
  content TEXT NOT NULL,
  created REAL NOT NULL,
  PRIMARY KEY (conversation, position)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS conversations_by_use ON conversations (updated);
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
_SECONDS_TO_WAIT = 3.0  # for another process that writes
_TITLE_LENGTH = 200
_LISTED = f"""
SELECT c.id, c.kind, c.model, c.started, c.updated,
  (SELECT count(*) FROM messages m WHERE m.conversation = c.id),
  coalesce((SELECT substr(m.content, 1, {_TITLE_LENGTH}) FROM messages m
    WHERE m.conversation = c.id AND m.role = 'user' ORDER BY m.position LIMIT 1), '')
FROM conversations c
"""


_ADD_OR_CHANGE = """
INSERT INTO messages VALUES (?, ?, ?, ?, ?) ON CONFLICT (conversation, position) DO UPDATE
SET role = excluded.role, content = excluded.content, created = excluded.created
WHERE (role, content) <> (excluded.role, excluded.content)
"""


class LogStore(Closing):
    """An open log; raises sqlite3.Error, OSError or SharpiError for a file that is unusable."""

    def __init__(self, path: Path) -> None:
        import sqlite3  # takes 5 ms, which is wasted where nothing is logged

        make_private_folder(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        self._file = sqlite3.connect(path, timeout=_SECONDS_TO_WAIT, isolation_level=None)
        try:
            self._file.execute("PRAGMA foreign_keys = ON")
            with suppress(sqlite3.OperationalError):  # another process is switching to it
                self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            version = self._file.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise SharpiError(f"{path} was written by a later sharpi; update this one")
            if not version:
                self._file.executescript(_SCHEMA)
        except BaseException:
            self._file.close()
            raise

    def begin(self, kind: str, model: str) -> int:
        """Adds an empty conversation and returns its id."""
        now = time.time()
        row = self._file.execute(
            "INSERT INTO conversations (kind, model, started, updated) VALUES (?, ?, ?, ?)",
            (kind, model, now, now),
        )
        return int(row.lastrowid or 0)

    def write(self, conversation: int, messages: Sequence[Message], model: str) -> None:
        """Makes a conversation equal to `messages` in one transaction; equal ones stay."""
        now = time.time()
        rows = [
            (conversation, position, each["role"], each["content"], now)
            for position, each in enumerate(messages)
        ]
        with self._file:
            self._file.execute("BEGIN IMMEDIATE")
            self._file.execute(
                "DELETE FROM messages WHERE conversation = ? AND position >= ?",
                (conversation, len(rows)),
            )
            self._file.executemany(_ADD_OR_CHANGE, rows)
            self._file.execute(
                "UPDATE conversations SET updated = ?, model = ? WHERE id = ?",
                (now, model, conversation),
            )

    def listed(self, limit: int = -1, kind: str | None = None) -> list[KeptConversation]:
        """Returns the latest conversations without messages; -1 has no limit, None all kinds."""
        rows = self._file.execute(
            f"{_LISTED} WHERE ?1 IS NULL OR c.kind = ?1"
            " ORDER BY c.updated DESC, c.id DESC LIMIT ?2",
            (kind, limit),
        )
        return [KeptConversation(*row) for row in rows]

    def find(self, conversation: int) -> KeptConversation:
        """Returns the conversation with this id and its messages; raises UsageError without one."""
        row = self._file.execute(f"{_LISTED} WHERE c.id = ?", (conversation,)).fetchone()
        if row is None:
            raise UsageError(f"the log has no conversation {conversation}; `sharpi log` lists them")
        messages = self._file.execute(
            "SELECT role, content FROM messages WHERE conversation = ? ORDER BY position",
            (conversation,),
        )
        turns = tuple({"role": role, "content": content} for role, content in messages)
        return replace(KeptConversation(*row), messages=turns)

    def search(self, text: str) -> list[tuple[KeptConversation, str]]:
        """Returns conversations that contain `text` in any ASCII case, and one such message."""
        pattern = "%" + "".join("\\" + c if c in "%_\\" else c for c in text) + "%"
        rows = self._file.execute(
            f"SELECT c.*, m.content FROM ({_LISTED}) c JOIN messages m ON m.conversation = c.id"
            " WHERE m.content LIKE ? ESCAPE '\\' GROUP BY c.id ORDER BY c.updated DESC",
            (pattern,),
        )
        return [(KeptConversation(*row[:-1]), row[-1]) for row in rows]

    def remove(self, conversations: Iterable[int]) -> int:
        """Removes conversations by id, and overwrites their text; returns how many existed."""
        self._file.execute("PRAGMA secure_delete = ON")
        rows = [(each,) for each in conversations]
        removed = self._file.executemany("DELETE FROM conversations WHERE id = ?", rows).rowcount
        self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return removed

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
