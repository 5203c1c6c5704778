"""The log of conversations: what is kept, who may read it, and what happens where it fails."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sharpi.cli.log.conversation_log import ConversationLog, kept_conversation
from sharpi.cli.log.log_store import SCHEMA_VERSION, LogStore, log_path, switch
from sharpi.errors import SharpiError, UsageError

MODEL = Path("/models/m.gguf")
HELLO = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]
MORE = [*HELLO, {"role": "user", "content": "Größe 🙂?"}]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "sharpi"


def write(*turns: list[dict[str, str]], kind: str = "chat") -> ConversationLog:
    log = ConversationLog(kind)
    for messages in turns:
        log.write(messages, MODEL)
    return log


def test_what_is_said_is_kept(state: Path) -> None:
    write(HELLO[:1], HELLO, MORE).close()
    kept = kept_conversation(None)
    assert (kept.id, kept.kind, kept.model, kept.title) == (1, "chat", str(MODEL), "Hello")
    assert list(kept.messages) == MORE


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_only_the_owner_reads_it(state: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        log = write(HELLO)
    finally:
        os.umask(before)
    files = [*state.iterdir()]
    assert len(files) > 1  # the write-ahead log as well
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    log.close()


def test_it_follows_what_is_taken_back(state: Path) -> None:
    other = [*HELLO[:1], {"role": "assistant", "content": "Good day."}]
    log = write(MORE, HELLO[:1], other)
    assert list(kept_conversation(1).messages) == other
    log.begin_anew()
    log.write(HELLO, MODEL)
    assert list(kept_conversation(2).messages) == HELLO
    assert list(kept_conversation(1).messages) == other


def test_a_conversation_whose_only_question_was_refused_is_gone(state: Path) -> None:
    system = [{"role": "system", "content": "Be brief."}]
    log = write([*system, *HELLO[:1]], system, [])
    with pytest.raises(UsageError, match="no chat to continue"):
        kept_conversation(None)
    log.write(HELLO, MODEL)
    assert list(kept_conversation(None).messages) == HELLO


def test_a_continued_conversation_stays_one(state: Path) -> None:
    write(HELLO).close()
    log = ConversationLog("chat", kept=kept_conversation(1))
    log.write(MORE, MODEL)
    assert list(kept_conversation(1).messages) == MORE
    with pytest.raises(UsageError, match="no conversation 2"):
        kept_conversation(2)


def test_the_latest_chat_is_not_a_run(state: Path) -> None:
    write(HELLO).close()
    write(MORE, kind="run").close()
    assert kept_conversation(None).id == 1


def test_no_switch_no_log(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ConversationLog("chat", is_wanted=False).write(HELLO, MODEL)
    switch(on=False)
    write(HELLO).close()
    assert [path.name for path in state.iterdir()] == ["log-off"]
    switch(on=True)
    write(HELLO).close()
    assert kept_conversation(1).messages
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    assert log_path() is None
    write(HELLO).close()


def test_an_empty_conversation_is_not_begun(state: Path) -> None:
    write([]).close()
    assert not state.exists()


class TestFailures:
    """Each failure gives one note, and the conversation goes on."""

    def note(self, capfd: pytest.CaptureFixture[str], times: int = 3) -> str:
        write(*[MORE[: 1 + count] for count in range(times)]).close()
        err = capfd.readouterr().err
        assert err.count("\n") == 1
        assert err.startswith("note: the conversation is not logged: ")
        return err

    def test_a_file_in_place_of_the_folder(
        self, state: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        state.write_text("")
        self.note(capfd)

    def test_a_file_that_is_no_log(self, state: Path, capfd: pytest.CaptureFixture[str]) -> None:
        state.mkdir()
        (state / "conversations.sqlite3").write_bytes(b"not a database" * 1000)
        assert "not a database" in self.note(capfd)
        assert (state / "conversations.sqlite3").read_bytes().startswith(b"not a")
        with pytest.raises(SharpiError, match="cannot use the log"):
            kept_conversation(None)

    def test_a_later_version_is_left_alone(
        self, state: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        write(HELLO).close()
        path = state / "conversations.sqlite3"
        with sqlite3.connect(path) as file:
            file.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        file.close()
        assert "later sharpi" in self.note(capfd)

    def test_a_full_disk(
        self, state: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(LogStore, "write", fail)
        assert "disk is full" in self.note(capfd)

    def test_a_log_that_another_process_holds(
        self, state: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(HELLO).close()
        monkeypatch.setattr("sharpi.cli.log.log_store._SECONDS_TO_WAIT", 0.05)
        with sqlite3.connect(state / "conversations.sqlite3", isolation_level=None) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert "locked" in self.note(capfd)
            other.execute("ROLLBACK")
        other.close()


def test_several_processes_at_once(state: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from sharpi.cli.log.conversation_log import ConversationLog\n"
        "for number in range(20):\n"
        "    log = ConversationLog('chat'); turns = []\n"
        "    for turn in range(3):\n"
        "        turns.append({'role': 'user', 'content': f'{sys.argv[1]} {number} {turn}'})\n"
        "        log.write(turns, Path('/m.gguf'))\n"
        "    log.close()\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, name], stderr=subprocess.PIPE)
        for name in "abc"
    ]
    assert [process.communicate()[1] for process in processes] == [b""] * 3
    with LogStore(state / "conversations.sqlite3") as store:
        assert {each.num_messages for each in store.listed()} == {3}
        assert len(store.listed()) == 60
        for kept in store.listed():
            name, number, _ = kept.title.split()
            found = store.find(kept.id)
            assert [each["content"] for each in found.messages] == [
                f"{name} {number} {turn}" for turn in range(3)
            ]


def test_a_new_file_that_another_process_prepares(state: Path) -> None:
    path = state / "conversations.sqlite3"
    state.mkdir(parents=True)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.2, other.rollback)
    release.start()
    with LogStore(path) as store:  # waits, while SQLite's PRAGMA journal_mode would not
        assert store.listed() == []
    release.join()
    other.close()


def test_removed_texts_are_gone_from_the_file(state: Path) -> None:
    write([{"role": "user", "content": "secret" * 100}]).close()
    with LogStore(state / "conversations.sqlite3") as store:
        assert store.remove([1, 7]) == 1
    assert all(b"secret" not in path.read_bytes() for path in state.iterdir())
