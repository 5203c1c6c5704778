"""`sharpi chat` through a pipe: turns, commands, KV reuse, and the ways an answer can end."""

import json
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from fake_engine import FakeEngine, FakeTokenizer

sys.path.insert(0, str(Path(__file__).parents[2] / "experts"))
from expert_runs import a_run

from sharpi.cli.chat.line_input import LineInput
from sharpi.cli.chat.slash_commands import NAMES
from sharpi.errors import ContextFullError, TemplateError


def talk(sharpi: CommandLine, *lines: str, flags: tuple[str, ...] = ()) -> tuple[str, str]:
    result = sharpi("chat", "m.gguf", *flags, stdin="\n".join(lines) + "\n")
    assert result.exit_code == 0
    return result.out, result.err


def test_answers_line_by_line_without_prompts(sharpi: CommandLine, engine: FakeEngine) -> None:
    engine.scripts = [["Hello", "!"], ["Fine."]]
    out, err = talk(sharpi, "Hi", "", "How are you?")
    assert (out, err) == ("Hello!\nFine.\n", "")
    assert engine.prompt_text() == "[user]Hi[assistant]Hello![user]How are you?[assistant]"


def test_single_turn_ends_after_one_answer(sharpi: CommandLine, engine: FakeEngine) -> None:
    out, _ = talk(sharpi, "/help", "Hi", "How are you?", flags=("--single-turn",))
    assert (out, len(engine.prompts)) == ("Paris it is.\n", 1)


def test_verbose_prompt_shows_each_turn(sharpi: CommandLine, engine: FakeEngine) -> None:
    _, err = talk(sharpi, "Hi", "Yes", flags=("--verbose-prompt",))
    first = "<bos>[user]Hi<end>[assistant]"
    assert [line for line in err.splitlines() if line.startswith("prompt: ")] == [
        f"prompt: {first!r}, {len(engine.prompts[0])} tokens",
        f"prompt: {first + 'Paris it is.<end>[user]Yes<end>[assistant]'!r},"
        f" {len(engine.prompts[1])} tokens",
    ]


class TestTurns:
    def test_next_turn_starts_with_the_tokens_of_the_last(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        engine.scripts = [["Hello!"], ["Fine."]]
        talk(sharpi, "Hi", "How are you?")
        first, second = engine.prompts
        encode = FakeTokenizer().encode
        shared = first + encode("Hello!", add_bos=False, parse_special=False)
        # the fake template writes [assistant] before each answer, as real ones do
        assert second[: len(shared)] == shared

    def test_channels_of_gpt_oss_are_no_part_of_earlier_answers(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        answer = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
        engine.scripts = [[answer, "<|message|>Hello!"], ["Fine."]]
        talk(sharpi, "Hi", "How are you?")
        assert engine.prompt_text() == "[user]Hi[assistant]Hello![user]How are you?[assistant]"

    def test_plain_model_continues_one_text(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.chat_format.kind = "plain"
        engine.scripts = [[" there was a cat."], [" too."]]
        talk(sharpi, "Once", "And a dog")
        assert engine.prompt_text() == "Once there was a cat.\nAnd a dog"

    def test_several_lines_as_one_message(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        talk(sharpi, "one\\", "two", '"""', "  three", "", 'four"""', '"""five"""')
        asked = [text.rsplit("[user]", 1)[1] for text in map(engine.prompt_text, range(3))]
        assert asked == ["one\ntwo[assistant]", "  three\n\nfour[assistant]", "five[assistant]"]

    def test_open_block_ends_with_the_input(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        talk(sharpi, '"""one', "two")
        assert "[user]one\ntwo[" in engine.prompt_text()

    def test_bytes_that_are_not_text(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        assert sharpi("chat", "m.gguf", stdin=b"a\xffb\n").exit_code == 0
        assert "[user]a�b[" in engine.prompt_text()


class TestEnds:
    def test_interrupted_answer_is_kept(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.scripts = [["Hel", KeyboardInterrupt()], ["Fine."]]
        out, _ = talk(sharpi, "Hi", "Go on")
        assert out == "Hel\nFine.\n"
        assert "Hel[user]Go on" in engine.prompt_text()

    def test_question_without_answer_is_dropped(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        engine.scripts = [[KeyboardInterrupt()], ["Fine."]]
        talk(sharpi, "Hi", "Hello")
        assert engine.prompt_text() == "[user]Hello[assistant]"

    def test_full_context_is_said_and_survived(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        engine.scripts = [[ContextFullError("9 tokens do not fit")], ["Fine."]]
        out, err = talk(sharpi, "Hi", "Hello")
        assert err == "error: 9 tokens do not fit\n"
        assert out == "Fine.\n"
        assert engine.prompt_text() == "[user]Hello[assistant]"

    def test_template_that_refuses(
        self, sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object, **__: object) -> str:
            raise TemplateError("roles must alternate")

        monkeypatch.setattr(engine.chat_format, "render", refuse)
        _, err = talk(sharpi, "Hi", "/stats")
        assert err.startswith("error: roles must alternate\n0 messages")

    def test_ctrl_c_while_a_pipe_is_read_ends_the_program(
        self, sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(_: LineInput) -> str | None:
            raise KeyboardInterrupt

        monkeypatch.setattr(LineInput, "_piped_line", interrupt)
        assert sharpi("chat", "m.gguf").exit_code == 130


class TestCommands:
    def test_help_and_exit(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        out, err = talk(sharpi, "/help", "/exit", "not read")
        lines = err.splitlines()
        assert tuple(line.split()[0] for line in lines[: len(NAMES)]) == NAMES
        assert max(map(len, lines)) <= 80
        assert (out, engine.prompts) == ("", [])

    def test_unknown_command(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        _, err = talk(sharpi, "/rest", "Hi")
        assert err == "error: no command /rest; did you mean /reset?\n"
        assert len(engine.prompts) == 1

    def test_reset_keeps_the_system_message(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        talk(sharpi, "Hi", "/reset", "Hello", flags=("--system", "Be brief."))
        assert engine.prompt_text() == "[system]Be brief.[user]Hello[assistant]"

    def test_system(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        _, err = talk(sharpi, "/system", "Hi", "/system Be brief.", "/system", "Hello")
        assert err.splitlines() == ["System message: none"] + ["System message: Be brief."] * 2
        assert engine.prompt_text().startswith("[system]Be brief.[user]Hi")

    def test_system_without_template(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.chat_format.kind = "plain"
        _, err = talk(sharpi, "/system Be brief.")
        assert "no chat template" in err

    def test_stats(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        _, err = talk(sharpi, "Hi", "/stats")
        lines = err.splitlines()
        assert lines[0] == f"2 messages, {len(engine.prompts[0])} of 64 tokens of context in use"
        assert lines[1].startswith("prompt 20.0 tokens/s")

    def test_experts(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.stats = a_run()
        out, err = talk(sharpi, "/experts")
        assert out == ""
        assert "hits        90.0 % (180 of 200)" in err
        assert "uses: a column is an expert" in err

    def test_experts_of_a_model_without_slots(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        _, err = talk(sharpi, "/experts")
        assert err.startswith("No experts were counted")
        assert err.count("\n") == 1

    def test_save_and_load(self, sharpi: CommandLine, engine: FakeEngine, tmp_path: Path) -> None:
        path = tmp_path / "talk.json"
        engine.scripts = [["Hello!"], ["Fine."]]
        talk(sharpi, "Hi", f"/save {path}")
        assert json.loads(path.read_text())["messages"] == [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello!"},
        ]
        assert list(tmp_path.iterdir()) == [path]
        _, err = talk(sharpi, f"/load {path}", "Well?")
        assert err == f"> Hi\nHello!\nLoaded 2 messages from {path}.\n"
        assert "Hello!" in engine.prompt_text()

    @pytest.mark.parametrize(
        "content",
        [
            None,
            b"",
            b"{",
            b"[]",
            b'{"messages": 3}',
            b'{"messages": [{"role": "user"}]}',
            b'{"messages": [{"role": "root", "content": ""}]}',
            b"\xff",
            b"[" * 100_000,
        ],
    )
    def test_bad_file_is_one_line_and_changes_nothing(
        self, sharpi: CommandLine, engine: FakeEngine, tmp_path: Path, content: bytes | None
    ) -> None:
        path = tmp_path / "bad.json"
        if content is not None:
            path.write_bytes(content)
        _, err = talk(sharpi, "Hi", f"/load {path}", "/stats")
        lines = err.splitlines()
        assert lines[0].startswith("error: ")
        assert str(path) in lines[0]
        assert lines[1].startswith("2 messages")

    @pytest.mark.parametrize("line", ["/save", "/load", "/save /no/such/folder/x"])
    def test_bad_names(self, sharpi: CommandLine, engine: FakeEngine, line: str) -> None:
        _, err = talk(sharpi, line)
        assert err.startswith("error: ")
        assert err.count("\n") == 1
