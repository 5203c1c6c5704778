"""`sharpi run`: the sources of model and prompt, what is printed where, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine
from fake_engine import BOS, FakeEngine

from sharpi.errors import ContextFullError, ModelFileError
from sharpi.resources import demo_model


def test_answer_on_stdout_and_timings_on_stderr(sharpi: CommandLine, engine: FakeEngine) -> None:
    result = sharpi("run", "m.gguf", "Where?")
    assert result.exit_code == 0
    assert result.out == "Paris it is.\n"
    assert result.err.splitlines() == [
        "prompt 20.0 tokens/s (10 tokens), decode 25.0 tokens/s (5 tokens), "
        "first token after 0.25 s"
    ]
    assert engine.is_closed


class TestPrompt:
    def test_template_with_system(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        sharpi("run", "m.gguf", "Where?", "-sys", "Be brief.")
        assert engine.prompt_text() == "[system]Be brief.[user]Where?[assistant]"

    def test_bos_of_the_template_is_not_doubled(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        sharpi("run", "m.gguf", "Where?")
        assert engine.prompts[-1].count(BOS) == 1

    def test_raw_gets_bos_and_no_template(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        result = sharpi("run", "m.gguf", "Where?", "--raw")
        assert engine.prompt_text() == "Where?"
        assert engine.prompts[-1][0] == BOS
        assert result.out == "Where?Paris it is.\n"

    def test_plain_model_continues(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.chat_format.kind = "plain"
        assert sharpi("run", "m.gguf", "Where? ").out == "Where? Paris it is.\n"

    def test_prompt_of_a_continuation_is_not_displayed_if_so_asked(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        engine.chat_format.kind = "plain"
        result = sharpi("run", "m.gguf", "Where? ", "--no-display-prompt", "--single-turn")
        assert result.out == "Paris it is.\n"

    def test_verbose_prompt_lists_the_tokens(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        err = sharpi("run", "m.gguf", "ab", "--raw", "--verbose-prompt").err.splitlines()
        assert err[0] == "prompt: 'ab', 3 tokens"
        assert err[1:4] == ["     1 -> ''", "   107 -> 'a'", "   108 -> 'b'"]

    def test_system_prompt_is_the_system_message(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        sharpi("run", "m.gguf", "Where?", "--system-prompt", "Be brief.")
        assert engine.prompt_text() == "[system]Be brief.[user]Where?[assistant]"

    @pytest.mark.parametrize("where", [["-"], ["-p", "-"], ["-f", "-"], []])
    def test_stdin(self, sharpi: CommandLine, engine: FakeEngine, where: list[str]) -> None:
        sharpi("run", "m.gguf", "--raw", *where, stdin="two\r\n lines \n")
        assert engine.prompt_text() == "two\r\n lines "

    def test_file(self, sharpi: CommandLine, engine: FakeEngine, tmp_path: Path) -> None:
        (tmp_path / "prompt").write_bytes("grüß\n\n".encode())
        sharpi("run", "m.gguf", "--raw", "-f", str(tmp_path / "prompt"))
        assert engine.prompt_text() == "grüß\n"

    @pytest.mark.parametrize(
        ("flags", "thinking"), [([], None), (["--think"], True), (["--no-think"], False)]
    )
    def test_thinking(
        self, sharpi: CommandLine, engine: FakeEngine, flags: list[str], thinking: bool | None
    ) -> None:
        sharpi("run", "m.gguf", "Where?", *flags)
        assert engine.chat_format.thinking == [thinking]


class TestSources:
    def test_nothing_is_the_demo(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.chat_format.kind = "plain"
        result = sharpi("run")
        assert engine.config.model == demo_model()
        assert result.out.startswith("Once upon a time")
        assert "demo" in result.err

    def test_lone_text_is_a_prompt_for_the_demo(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        result = sharpi("run", "What is 1/2 of 8?", "--raw")
        assert engine.config.model == demo_model()
        assert engine.prompt_text() == "What is 1/2 of 8?"
        assert "no MODEL" in result.err

    @pytest.mark.parametrize("name", ["some.gguf", "./folder/some", "SOME.GGUF"])
    def test_lone_path_is_a_model(self, sharpi: CommandLine, engine: FakeEngine, name: str) -> None:
        sharpi("run", name, stdin="hello")
        assert engine.config.model == Path(name)

    def test_lone_argument_beside_prompt_is_a_model(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        sharpi("run", "./some-model", "-p", "hello", "--raw")
        assert (engine.config.model, engine.prompt_text()) == (Path("some-model"), "hello")

    def test_lone_argument_beside_model_is_a_prompt(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        result = sharpi("run", "hello", "-m", "m.gguf", "--raw")
        assert (engine.config.model, engine.prompt_text()) == (Path("m.gguf"), "hello")
        assert "note" not in result.err

    def test_variables(
        self, sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SHARPI_MODEL", "other.gguf")
        monkeypatch.setenv("SHARPI_PROMPT", "from the variable")
        monkeypatch.setenv("SHARPI_RAW", "1")
        sharpi("run")
        assert engine.config.model == Path("other.gguf")
        assert engine.prompt_text() == "from the variable"
        sharpi("run", "mine.gguf", "from the argument")
        assert engine.config.model == Path("mine.gguf")
        assert engine.prompt_text() == "from the argument"

    @pytest.mark.parametrize(
        ("arguments", "names"),
        [
            (["m.gguf", "a", "-p", "b"], ["PROMPT", "--prompt"]),
            (["m.gguf", "-p", "b", "-f", "c"], ["--prompt", "--file"]),
            (["m.gguf", "a", "-m", "n.gguf"], ["MODEL", "--model"]),
            (["m.gguf", "-m", "n.gguf"], ["MODEL", "--model"]),
            (["m.gguf", "a", "--raw", "--system", "b"], ["--raw", "--system"]),
            (["m.gguf", "a", "--raw", "--no-think"], ["--raw", "--think"]),
        ],
    )
    def test_contradictions_are_refused_by_name(
        self, sharpi: CommandLine, engine: FakeEngine, arguments: list[str], names: list[str]
    ) -> None:
        result = sharpi("run", *arguments)
        assert (result.exit_code, result.err.count("\n"), result.out) == (2, 1, "")
        assert all(name in result.err for name in names)
        assert engine.config is None

    @pytest.mark.parametrize(
        ("content", "complaint"),
        [
            (None, "No such file"),
            (b"ab\xff", "byte 0xff at offset 2"),
            (b"\x93NUMPY\x01\x00", "`sharpi logits --tokens`"),
        ],
    )
    def test_bad_prompt_file(
        self,
        sharpi: CommandLine,
        engine: FakeEngine,
        tmp_path: Path,
        content: bytes | None,
        complaint: str,
    ) -> None:
        path = tmp_path / "prompt"
        if content is not None:
            path.write_bytes(content)
        result = sharpi("run", "m.gguf", "-f", str(path))
        assert (result.exit_code, result.err.count("\n")) == (2, 1)
        assert str(path) in result.err
        assert complaint in result.err

    def test_terminal_without_prompt_is_sent_to_chat(
        self, sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sharpi.cli.inputs.stdin_is_terminal", lambda: True)
        result = sharpi("run", "m.gguf")
        assert result.exit_code == 2
        assert "sharpi chat" in result.err


class TestEnds:
    def test_json(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        result = sharpi("run", "m.gguf", "Where?", "--json")
        record = json.loads(result.out)
        assert result.err == ""
        assert record["model"] == "m.gguf"
        assert record["text"] == "Paris it is."
        assert record["finish_reason"] == "stop"
        assert record["prompt_tokens"] == len(engine.prompts[-1])
        assert record["generated_tokens"] == len(record["ids"]) == 12
        assert record["timings"]["decode_tokens_per_second"] == 25.0

    def test_interrupt_keeps_what_was_said(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.scripts = [["Par", KeyboardInterrupt()]]
        result = sharpi("run", "m.gguf", "Where?")
        assert (result.exit_code, result.out) == (130, "Par\n")
        assert "decode 25.0 tokens/s" in result.err

    def test_interrupt_with_json(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.scripts = [["Par", KeyboardInterrupt()]]
        result = sharpi("run", "m.gguf", "Where?", "--json")
        assert result.exit_code == 130
        assert json.loads(result.out)["finish_reason"] == "interrupted"
        assert json.loads(result.out)["text"] == "Par"

    def test_failure_leaves_stdout_empty(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.scripts = [[ContextFullError("99 tokens do not fit; raise -c")]]
        result = sharpi("run", "m.gguf", "Where?", "--raw")
        assert (result.exit_code, result.out) == (1, "")
        assert result.err == "error: 99 tokens do not fit; raise -c\n"

    def test_system_without_template_is_refused(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        engine.chat_format.kind = "plain"
        result = sharpi("run", "m.gguf", "Where?", "--system", "Be brief.")
        assert result.exit_code == 2
        assert "no chat template" in result.err

    def test_notes_of_the_engine_are_shown(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        engine.notes = ("unknown pre-tokenizer",)
        assert "note: unknown pre-tokenizer\n" in sharpi("run", "m.gguf", "Where?").err

    def test_load_error_is_one_line(
        self, sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise ModelFileError("m.gguf: no such file")

        monkeypatch.setattr(sys.modules["sharpi.engine.loader"], "load_engine", fail)
        result = sharpi("run", "m.gguf", "Where?")
        assert (result.exit_code, result.err) == (1, "error: m.gguf: no such file\n")


def _heed_hangup() -> None:
    """Restores SIGHUP, which the tests ignore if `nohup` runs them."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _ignore_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _start(
    *arguments: str,
    stdout: str | int | None = None,
    stdin: int = subprocess.DEVNULL,
    last_words: str = "",
    before: Callable[[], None] = _heed_hangup,
) -> "subprocess.Popen[str]":
    program = Path(__file__).parents[1] / "fake_engine.py"
    return subprocess.Popen(
        [sys.executable, str(program), *arguments],
        stdout=Path(stdout).open("wb") if isinstance(stdout, str) else stdout or subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=stdin,
        preexec_fn=before,
        cwd=Path(__file__).parents[3],
        env={
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "PATH": "/usr/bin:/bin",
            "LAST_WORDS": last_words,
        },
        text=True,
    )


class TestProcess:
    def test_streams_and_sigint_exits_130(self) -> None:
        process = _start("run", "m.gguf", "hello")
        assert process.stdout is not None
        first = process.stdout.read(12)  # arrives long before the 20 seconds of it all
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
        assert first == "helloOne two"
        assert rest.endswith("\n")
        assert process.returncode == 130
        assert errors.startswith("prompt 20.0 tokens/s")
        assert errors.count("\n") == 1

    @pytest.mark.parametrize(
        ("number", "code", "times"),  # `timeout` sends it twice
        [(signal.SIGINT, 130, 4), (signal.SIGTERM, 143, 2), (signal.SIGHUP, 129, 1)],
    )
    def test_termination_closes_the_engine(self, times: int, number: int, code: int) -> None:
        process = _start("run", "m.gguf", "hello", last_words="wrote-stats")
        assert process.stdout is not None
        process.stdout.read(12)
        for _ in range(times):
            process.send_signal(number)
            time.sleep(0.05)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors.splitlines()[-1]) == (code, "note: wrote-stats")

    def test_closed_terminal_ends_an_answer_of_a_chat_with_the_records_written(self) -> None:
        ours, its = os.openpty()
        process = _start("chat", "m.gguf", last_words="wrote-stats", stdin=its, stdout=its)
        os.close(its)
        os.write(ours, b"hello\n")
        shown = b""
        while b"One two" not in shown:
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGHUP)
        os.close(ours)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 129
        assert errors.endswith("note: wrote-stats\n")

    def test_nohup_is_respected(self) -> None:
        process = _start("run", "m.gguf", "hello", before=_ignore_hangup)
        assert process.stdout is not None
        process.stdout.read(12)
        process.send_signal(signal.SIGHUP)
        assert process.stdout.read(100)
        assert process.poll() is None
        process.kill()
        process.communicate()

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
    def test_full_disk_behind_stdout_is_one_line(self) -> None:
        process = _start("run", "m.gguf", "hello", stdout="/dev/full")
        assert process.stderr is not None
        assert process.stderr.read() == "error: cannot read or write: No space left on device\n"
        assert process.wait(timeout=60) == 1

    def test_reader_that_goes_away_is_no_error(self) -> None:
        process = _start("run", "m.gguf", "hello", last_words="wrote-stats")
        assert process.stdout is not None
        process.stdout.read(8)
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == "note: wrote-stats\n"
        assert process.wait(timeout=60) == 0
