"""`sharpi log`, and how `chat` and `run` fill it and go on with it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, Result
from fake_engine import FakeEngine

from sharpi.cli.log.conversation_log import find_resumed


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "sharpi"


def chat(sharpi: CommandLine, *lines: str, flags: tuple[str, ...] = ()) -> Result:
    return sharpi("chat", "m.gguf", *flags, stdin="\n".join(lines) + "\n")


def test_chats_and_runs_are_kept(sharpi: CommandLine, engine: FakeEngine) -> None:
    chat(sharpi, "Hello there", "Well?")
    sharpi("run", "m.gguf", "Where is it?", "-sys", "Be brief.")
    lines = sharpi("log").out.splitlines()
    assert [line.split()[0] for line in lines] == ["2", "1"]
    assert lines[0].split()[3:] == ["run", "Where", "is", "it?"]
    assert lines[1].split()[3:] == ["chat", "Hello", "there"]
    shown = sharpi("log", "show", "2").out
    assert "[system]\nBe brief.\n\n[user]\nWhere is it?\n\n[assistant]\nParis it is.\n" in shown
    assert sharpi("log", "show").out == shown


def test_a_chat_goes_on(sharpi: CommandLine, engine: FakeEngine) -> None:
    chat(sharpi, "Hello there")
    sharpi("run", "m.gguf", "Where?")
    chat(sharpi, "And then?", flags=("--continue",))
    told = "[user]Hello there[assistant]Paris it is.[user]And then?[assistant]"
    assert engine.prompt_text() == told
    chat(sharpi, "Where again?", flags=("--resume", "2"))
    assert engine.prompt_text().startswith("[user]Where?[assistant]")
    assert len(sharpi("log", "list").out.splitlines()) == 2


def test_without_a_model_it_is_the_one_of_the_conversation(
    sharpi: CommandLine, engine: FakeEngine
) -> None:
    chat(sharpi, "Hello")
    sharpi("chat", "--continue", stdin="Well?\n")
    assert engine.config.model == Path("m.gguf").absolute()


@pytest.mark.parametrize("flags", [("--continue",), ("--resume", "7")])
def test_nothing_to_go_on_with(
    sharpi: CommandLine, engine: FakeEngine, flags: tuple[str, ...]
) -> None:
    result = chat(sharpi, "Hi", flags=flags)
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert "sharpi log" in result.err


def test_a_saved_conversation_goes_on_by_its_name(
    sharpi: CommandLine, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chat(sharpi, "Hello there", "/save trip")
    chat(sharpi, "And then?", flags=("--resume", "trip"))
    told = "[user]Hello there[assistant]Paris it is.[user]And then?[assistant]"
    assert engine.prompt_text() == told


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "no saved conversation trip"), ("[]", "not a saved conversation")],
    ids=["none", "another file"],
)
def test_a_name_without_a_conversation_is_refused(
    sharpi: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str | None,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("trip").write_text(content)
    result = chat(sharpi, "Hi", flags=("--resume", "trip"))
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert told in result.err


def test_a_saved_conversation_names_its_model(tmp_path: Path) -> None:
    path, model = tmp_path / "trip", tmp_path / "m.gguf"
    path.write_text(json.dumps({"model": str(model), "messages": []}))
    assert find_resumed(str(path)).model is None
    model.touch()
    assert find_resumed(str(path)).model == model


def test_both_ways_to_go_on(sharpi: CommandLine, engine: FakeEngine) -> None:
    assert "keep one" in chat(sharpi, flags=("--continue", "--resume", "1")).err


def test_reset_and_load_begin_another(
    sharpi: CommandLine, engine: FakeEngine, tmp_path: Path
) -> None:
    path = tmp_path / "talk.json"
    chat(sharpi, "One", f"/save {path}", "/reset", "Two", f"/load {path}", "Three")
    titles = [each["title"] for each in json.loads(sharpi("log", "--json").out)]
    assert titles == ["One", "Two", "One"]


@pytest.mark.parametrize("way", ["flag", "variable", "switch"])
def test_not_kept(
    sharpi: CommandLine,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    state: Path,
    way: str,
) -> None:
    flags: tuple[str, ...] = ()
    match way:
        case "flag":
            flags = ("--no-log",)
        case "variable":
            monkeypatch.setenv("SHARPI_NO_LOG", "1")
        case _:
            assert "not kept any more" in sharpi("log", "off").err
    assert chat(sharpi, "secret", flags=flags).err == ""
    assert sharpi("run", "m.gguf", "secret", *flags).exit_code == 0
    assert not (state / "conversations.sqlite3").exists()
    monkeypatch.delenv("SHARPI_NO_LOG", raising=False)
    sharpi("log", "on")
    chat(sharpi, "Hi")
    assert len(sharpi("log").out.splitlines()) == 1


def test_search(sharpi: CommandLine, engine: FakeEngine) -> None:
    chat(sharpi, "The RED ball and 100% of it")
    chat(sharpi, "A blue ball")
    assert sharpi("log", "search", "red", "ball").out.split()[0] == "1"
    assert "1" in sharpi("log", "search", "100%").out
    assert len(sharpi("log", "search", "ball").out.splitlines()) == 2
    chat(sharpi, "word " * 30 + "needle" + " word" * 30)
    (line,) = sharpi("log", "search", "needle").out.splitlines()
    assert len(line) <= 80
    assert line.split("chat  ")[1].startswith("...")
    assert line.endswith("...")
    nothing = sharpi("log", "search", "no%such")
    assert (nothing.exit_code, nothing.err) == (1, "error: no conversation has 'no%such'\n")


def test_export_is_what_load_reads(sharpi: CommandLine, engine: FakeEngine, tmp_path: Path) -> None:
    chat(sharpi, "Größe")
    chat(sharpi, "Two")
    path = tmp_path / "one.json"
    path.write_text(sharpi("log", "export", "1").out)
    chat(sharpi, f"/load {path}", "Well?", flags=("--no-log",))
    assert engine.prompt_text().startswith("[user]Größe[assistant]")
    whole = json.loads(sharpi("log", "export").out)
    assert [each["id"] for each in whole] == [1, 2]
    assert whole[0]["messages"][0] == {"role": "user", "content": "Größe"}


def test_rm(sharpi: CommandLine, engine: FakeEngine) -> None:
    for text in ("One", "Two", "Three"):
        chat(sharpi, text)
    assert sharpi("log", "rm", "1", "9").exit_code == 2
    assert len(sharpi("log").out.splitlines()) == 3
    assert sharpi("log", "rm", "1", "3").err == "Removed 2 conversations.\n"
    assert sharpi("log", "rm", "--all").err == "Removed 1 conversation.\n"
    assert sharpi("log").err == "The log is empty.\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("rm",), "--all"),
        (("rm", "1", "--all"), "--all"),
        (("rm", "x"), "'x' is not the id"),
        (("show", "5"), "no conversation 5"),
        (("show",), "the log is empty"),
        (("search",), "search needs a text"),
        (("sho",), "'sho' is not one of 'list', 'show'"),
        (("list", "-n", "0"), "below 1"),
    ],
)
def test_misuse_is_one_line(
    sharpi: CommandLine, engine: FakeEngine, arguments: tuple[str, ...], complaint: str
) -> None:
    result = sharpi("log", *arguments)
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert complaint in result.err


def test_a_broken_log_is_one_line(sharpi: CommandLine, engine: FakeEngine, state: Path) -> None:
    state.mkdir()
    (state / "conversations.sqlite3").write_bytes(b"x" * 5000)
    result = sharpi("log")
    assert (result.exit_code, result.err.count("\n")) == (1, 1)
    assert chat(sharpi, "Hi").out == "Paris it is.\n"


def test_other_commands_do_not_import_it() -> None:
    """A chat that reads no terminal needs no editor, and no log before its first question."""
    commands = [["run", "--help"], ["list"], ["log", "--help"], ["chat"]]
    code = (
        f"import sys; from sharpi.cli.main import main; [main(each) for each in {commands!r}];"
        "print([m for m in ('prompt_toolkit', 'sqlite3') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.stdout.splitlines()[-1] == "[]", result
