"""The commands that change a chat: taking back, settings, files, models, saving."""

import json
import os
from pathlib import Path

import pytest
from command_line import CommandLine
from fake_engine import FakeEngine

from sharpi.cli.chat.slash_commands import ALIASES, NAMES, SlashCommands


def talk(sharpi: CommandLine, *lines: str, flags: tuple[str, ...] = ()) -> tuple[str, str]:
    result = sharpi("chat", "m.gguf", *flags, stdin="\n".join(lines) + "\n")
    assert result.exit_code == 0
    return result.out, result.err


class TestTakingBack:
    def test_retry_asks_the_same_again(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.scripts = [["Bad."], ["Good."], ["Fine."]]
        out, _ = talk(sharpi, "Hi", "/retry", "Well?")
        assert out == "Bad.\nGood.\nFine.\n"
        assert engine.prompts[0] == engine.prompts[1]
        assert engine.prompt_text() == "[user]Hi[assistant]Good.[user]Well?[assistant]"

    def test_undo(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        _, err = talk(sharpi, "Hi", "Oops", "/undo", "Well?")
        assert err == "Took back: Oops\n"
        assert engine.prompt_text() == "[user]Hi[assistant]Paris it is.[user]Well?[assistant]"

    def test_what_was_taken_back_is_in_no_count(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        def used(*lines: str) -> int:
            err = talk(sharpi, *lines, "/stats")[1]
            line = next(each for each in err.splitlines() if "of context" in each)
            return int(line.split()[2])

        answer = len("Paris it is.")  # which the fake session does not count
        assert used("Hi", "Oops", "/undo") == used("Hi") + answer
        assert used("Hi", "/undo") == used("Hi", "/reset") == 0

    @pytest.mark.parametrize("command", ["/undo", "/retry"])
    def test_nothing_to_take_back(
        self, sharpi: CommandLine, engine: FakeEngine, command: str
    ) -> None:
        assert talk(sharpi, command)[1] == "error: there is no question yet\n"

    def test_edit_needs_an_editor(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        _, err = talk(sharpi, "Hi", "/edit", "/stats")
        assert err.startswith("error: /edit needs a terminal")
        assert "2 messages" in err


class TestNames:
    @pytest.mark.parametrize("name", ["/exit", "/quit", "/bye", " /quit"])
    def test_leaving(self, sharpi: CommandLine, engine: FakeEngine, name: str) -> None:
        talk(sharpi, name, "Hi")
        assert engine.prompts == []

    def test_other_names(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        _, err = talk(sharpi, "/?", "Hi", "/clear", "/stats")
        assert err.startswith("/help ")
        assert "0 messages" in err

    @pytest.mark.parametrize(("typed", "meant"), [("/sytem", "/system"), ("/qiut", "/quit")])
    def test_did_you_mean(
        self, sharpi: CommandLine, engine: FakeEngine, typed: str, meant: str
    ) -> None:
        assert talk(sharpi, typed)[1] == f"error: no command {typed}; did you mean {meant}?\n"

    def test_questions_that_begin_with_a_slash(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        _, err = talk(sharpi, "/etc/hosts: what is in it?", "//etc/hosts: what is in it?")
        assert err.startswith("error: no command /etc/hosts:; ")
        assert "//" in err
        assert engine.prompt_text() == "[user]/etc/hosts: what is in it?[assistant]"


class TestSettings:
    def test_the_next_answer_has_them(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        talk(sharpi, "/set temp 0.2", "/set top_k 7", "/set n 5", "/set stop END", "Hi")
        request = engine.requests[-1]
        assert (request.sampling.temperature, request.sampling.top_k) == (0.2, 7)
        assert (request.max_tokens, request.stop) == (5, ("END",))

    def test_reasoning(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        talk(sharpi, "Hi", "/set think off", "Hi")
        assert engine.chat_format.thinking == [None, False]

    def test_all_are_listed_with_their_values(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        _, err = talk(sharpi, "/set temp 0.25", "/set")
        change, *rows = err.splitlines()
        assert change == "temp 0.25"
        assert rows[0].split()[:3] == ["temp", "0.25", "Randomness"]
        assert "..." not in err

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ("/set temp hot", "/set temp: 'hot' is not a number"),
            ("/set top-p 2", "/set top-p: '2' is above 1, the largest value"),
            ("/set temp", "/set temp needs a value"),
            ("/set colour red", "there is no setting colour; /set lists them"),
            ("/set tmp 1", "there is no setting tmp; did you mean temp? /set lists all"),
            (
                "/set temprature 1",
                "there is no setting temprature; did you mean temperature? /set lists all",
            ),
        ],
    )
    def test_bad_values(
        self, sharpi: CommandLine, engine: FakeEngine, line: str, complaint: str
    ) -> None:
        _, err = talk(sharpi, line)
        assert err.startswith(f"error: {complaint}")
        assert err.count("\n") == 1

    def test_a_cut_answer_is_noted(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.finish_reason = "length"
        assert "note: -n ended the answer" in talk(sharpi, "Hi", flags=("-n", "2"))[1]


class TestFiles:
    def test_a_file_goes_with_the_next_question(
        self, sharpi: CommandLine, engine: FakeEngine, tmp_path: Path
    ) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("one\ntwo\n")
        _, err = talk(sharpi, f"/file {path}", "Sum it up.", "Again.")
        assert err == "notes.txt (2 lines) goes with the next question.\n"
        question = "notes.txt:\n```\none\ntwo\n```\n\nSum it up."
        assert engine.prompt_text(0) == f"[user]{question}[assistant]"
        assert engine.prompt_text(1).count("notes.txt") == 1

    def test_files_that_are_no_text(
        self, sharpi: CommandLine, engine: FakeEngine, tmp_path: Path
    ) -> None:
        path = tmp_path / "picture"
        path.write_bytes(b"\xff\xd8")
        _, err = talk(sharpi, f"/file {path}", f"/file {tmp_path}", "/file", "Hi")
        assert [line.split(":")[0] for line in err.splitlines()] == ["error"] * 3
        assert engine.prompt_text() == "[user]Hi[assistant]"


class TestModel:
    def test_another_model_goes_on(
        self, sharpi: CommandLine, engine: FakeEngine, tmp_path: Path
    ) -> None:
        path = tmp_path / "other.gguf"
        path.touch()
        _, err = talk(sharpi, "Hi", f"/model {path}", "Well?")
        assert engine.config.model == path
        assert "other (fake" in err
        assert engine.prompt_text() == "[user]Hi[assistant]Paris it is.[user]Well?[assistant]"

    def test_without_a_name_it_is_shown(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        assert talk(sharpi, "/model")[1].startswith("m (fake, ")

    def test_a_model_that_is_not_there_changes_nothing(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        _, err = talk(sharpi, "Hi", "/model /no/such.gguf", "Well?")
        assert "no such file" in err
        assert "Hi" in engine.prompt_text()


class TestSaving:
    def test_nothing_but_regular_files_is_replaced(
        self, sharpi: CommandLine, engine: FakeEngine, tmp_path: Path
    ) -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        for target in (fifo, tmp_path, Path("/dev/null")):
            _, err = talk(sharpi, "Hi", f"/save {target}", f"/save -f {target}")
            assert err == f"error: cannot write {target}: it is not a regular file\n" * 2
        assert fifo.is_fifo()
        assert Path("/dev/null").is_char_device()

    def test_a_file_is_replaced_only_on_request(
        self, sharpi: CommandLine, engine: FakeEngine, tmp_path: Path
    ) -> None:
        path = tmp_path / "talk.json"
        path.write_text("precious")
        _, err = talk(sharpi, "Hi", f"/save {path}")
        assert err == f"error: {path} exists; /save -f {path} replaces it\n"
        assert path.read_text() == "precious"
        talk(sharpi, "Hi", f"/save -f {path}")
        assert json.loads(path.read_text())["messages"][0]["content"] == "Hi"

    def test_links_stay_links(
        self, sharpi: CommandLine, engine: FakeEngine, tmp_path: Path
    ) -> None:
        real, link = tmp_path / "real.json", tmp_path / "link.json"
        real.write_text("old")
        real.chmod(0o640)
        link.symlink_to(real)
        talk(sharpi, "Hi", f"/save -f {link}")
        assert link.is_symlink()
        assert json.loads(real.read_text())["messages"]
        assert real.stat().st_mode & 0o777 == 0o640

    def test_a_link_to_a_device(
        self, sharpi: CommandLine, engine: FakeEngine, tmp_path: Path
    ) -> None:
        link = tmp_path / "link"
        link.symlink_to("/dev/full")
        assert "not a regular file" in talk(sharpi, "Hi", f"/save -f {link}")[1]


def test_each_command_is_carried_out_and_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "chat.md").read_text()
    for name in (*NAMES, *ALIASES):
        assert hasattr(SlashCommands, "_" + ALIASES.get(name, name)[1:])
        assert f"`{name}" in page or name == "/?", name
