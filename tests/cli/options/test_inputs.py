"""What is typed is understood: words, pipes and folders, and names that mean nothing."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import gguf
import pytest
from command_line import CommandLine
from fake_engine import FakeEngine

from sharpi.cli.chat import line_input
from sharpi.resources import demo_model
from sharpi.system import files


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


class TestPipe:
    @pytest.mark.parametrize("given", [["What colour?"], ["-p", "What colour?"]])
    def test_stdin_comes_before_the_prompt(
        self, sharpi: CommandLine, engine: FakeEngine, given: list[str]
    ) -> None:
        sharpi("run", "m.gguf", "--raw", *given, stdin="The cat is black.\n")
        assert engine.prompt_text() == "The cat is black.\n\nWhat colour?"

    def test_stdin_comes_before_a_file(
        self, sharpi: CommandLine, engine: FakeEngine, empty_cache: Path
    ) -> None:
        (empty_cache / "ask.txt").write_text("What colour?\n")
        sharpi("run", "m.gguf", "--raw", "-f", "ask.txt", stdin="The cat is black.")
        assert engine.prompt_text() == "The cat is black.\n\nWhat colour?"

    def test_the_demo_reads_a_pipe(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        result = sharpi("run", "--raw", stdin="A dog\n")
        assert (engine.config.model, engine.prompt_text()) == (demo_model(), "A dog")
        assert "note" not in result.err

    def test_nothing_on_stdin(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        result = sharpi("run", "m.gguf")
        assert (result.exit_code, engine.config) == (2, None)
        assert result.err.startswith("error: no prompt: standard input is empty; give one")

    @pytest.mark.parametrize("arguments", [("m.gguf", "-"), ("-",), ("m.gguf", "-f", "-")])
    def test_nothing_on_stdin_where_it_was_asked_for(
        self, sharpi: CommandLine, engine: FakeEngine, arguments: tuple[str, ...]
    ) -> None:
        result = sharpi("run", *arguments, stdin="\n")
        assert result.exit_code == 2
        assert "no prompt: standard input is empty; give one" in result.err

    def test_somebody_who_waits_for_an_open_pipe_is_told(self) -> None:
        code = (
            "import sys; from sharpi.cli import inputs as it;"
            "it.DELAY_SECONDS = 0.05; print(it.piped_text())"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as program:
            assert program.stderr is not None
            assert program.stderr.readline().startswith("note: waiting for standard input")
            assert program.communicate("late")[0] == "late\n"

    def test_a_closed_or_endless_stdin_is_none(self) -> None:
        module = "sharpi.cli.inputs"
        code = f"from {module} import piped_text; print(repr(piped_text()))"
        for source in ("<&-", "</dev/null", "</dev/zero"):
            shell = f'"{sys.executable}" -c "{code}" {source}'
            done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
            assert done.stdout == "''\n"


class TestWords:
    def test_words_after_the_model_are_one_prompt(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        sharpi("run", "m.gguf", "What", "is", "it?", "--raw")
        assert (engine.config.model, engine.prompt_text()) == (Path("m.gguf"), "What is it?")

    def test_words_beside_a_model_option(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        sharpi("run", "-m", "m.gguf", "What", "is", "it?", "--raw")
        assert (engine.config.model, engine.prompt_text()) == (Path("m.gguf"), "What is it?")

    def test_a_prompt_in_quotes_is_no_model(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        sharpi("run", "What is the capital of France?", "hi", "--raw")
        assert engine.config.model == demo_model()
        assert engine.prompt_text() == "What is the capital of France? hi"

    def test_a_lone_word_is_refused(
        self, sharpi: CommandLine, engine: FakeEngine, empty_cache: Path
    ) -> None:
        (empty_cache / "llama3-8b.gguf").touch()
        result = sharpi("run", "llama3-8", "-n", "5")
        assert (result.exit_code, result.out, engine.config) == (2, "", None)
        assert result.err.count("\n") == 1
        for part in ("'llama3-8' is neither a file", "did you mean llama3-8b.gguf?"):
            assert part in result.err
        for part in ("`sharpi pull ORG/REPO:QUANT`", "sharpi run -p llama3-8"):
            assert part in result.err

    def test_words_without_quotes_are_explained(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        result = sharpi("run", "What", "is", "its", "name's", "sound")
        assert (result.exit_code, engine.config) == (2, None)
        command = result.err.partition("if it is the prompt, write ")[2]
        assert shlex.split(command) == ["sharpi", "run", "-p", "What is its name's sound"]

    def test_stdin_as_the_prompt_beside_another_one(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        result = sharpi("run", "-", "-p", "hello")
        assert (result.exit_code, engine.config) == (2, None)
        assert "PROMPT and --prompt both give the prompt" in result.err

    def test_a_word_that_cannot_be_a_name_is_a_prompt(
        self, sharpi: CommandLine, engine: FakeEngine
    ) -> None:
        sharpi("run", "Hello!", "--raw")
        assert engine.prompt_text() == "Hello!"

    @pytest.mark.parametrize("command", ["chat", "plan", "bench", "inspect", "tokenize"])
    def test_other_commands_refuse_a_word_too(self, sharpi: CommandLine, command: str) -> None:
        result = sharpi(command, "llama3")
        assert (result.exit_code, result.err.count("\n")) == (2, 1)
        assert "'llama3' is neither a file nor the name of a model" in result.err

    def test_nothing_in_quotes(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        assert sharpi("run", "").err.startswith("error: the argument is empty; name a model")
        assert sharpi("chat", "").err.startswith("error: the name of the model is empty")

    def test_a_url_is_echoed_as_typed(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        url = "https://example.org/models/x.gguf"
        result = sharpi("run", url, "hi")
        assert (result.exit_code, result.err.count("\n")) == (2, 1)
        assert result.err.startswith(f"error: {url} is a URL")


class TestFolders:
    def test_the_only_model(
        self, sharpi: CommandLine, engine: FakeEngine, empty_cache: Path
    ) -> None:
        for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mmproj-m.gguf", "a.txt"):
            (empty_cache / name).touch()
        sharpi("run", ".", "hi")
        assert engine.config.model == Path("m-00001-of-00002.gguf")

    def test_the_only_one_that_is_a_model(
        self, sharpi: CommandLine, engine: FakeEngine, empty_cache: Path
    ) -> None:
        (empty_cache / "m.gguf").touch()
        lora = gguf.GGUFWriter(empty_cache / "a.gguf", "llama")
        lora.add_type("adapter")
        lora.write_header_to_file()
        lora.write_kv_data_to_file()
        lora.close()
        sharpi("run", ".", "hi")
        assert engine.config.model == Path("m.gguf")

    def test_several(self, sharpi: CommandLine, engine: FakeEngine, empty_cache: Path) -> None:
        for name in ("b.gguf", "a.gguf"):
            (empty_cache / name).touch()
        result = sharpi("run", str(empty_cache), "hi")
        assert result.exit_code == 1
        assert "this is a folder with several models, a.gguf, b.gguf; name one" in result.err

    def test_none(self, sharpi: CommandLine, engine: FakeEngine) -> None:
        assert "a folder without a .gguf model" in sharpi("run", os.curdir, "hi").err


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "m.gguf", "-f", "/dev/zero"),
        ("run", "m.gguf", "-p", "a", "--json-schema", "/dev/zero"),
        ("chat", "m.gguf", "--resume", "/dev/zero"),
        ("stats", "/dev/zero"),
    ],
)
def test_an_endless_file_is_refused(
    sharpi: CommandLine,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 3 << 20)
    result = sharpi(*arguments)
    assert result.exit_code != 0
    assert "/dev/zero" in result.err
    assert "it has more than 3 MiB" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "m.gguf", "-f", "pipe"),
        ("run", "m.gguf", "-p", "a", "--json-schema", "pipe"),
        ("chat", "m.gguf", "--resume", "pipe"),
        ("stats", "pipe"),
        ("simulate", "pipe"),
        ("logits", "m.gguf", "--output", "o.npy", "--tokens", "pipe"),
    ],
)
def test_a_pipe_that_nobody_writes_to_is_refused(
    sharpi: CommandLine,
    engine: FakeEngine,
    empty_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    os.mkfifo(empty_cache / "pipe")
    monkeypatch.setattr(files, "PIPE_TIMEOUT_S", 0.02)
    result = sharpi(*arguments)
    assert result.exit_code != 0
    assert "pipe: a pipe" in result.err or "is a pipe" in result.err or "a pipe that" in result.err
    assert result.err.count("\n") == 1


def test_a_slow_program_may_write_to_a_pipe(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(empty_cache / "pipe")
    monkeypatch.setattr(files, "PIPE_TIMEOUT_S", 0.02)
    program, set_blocking = os.open("pipe", os.O_RDWR), os.set_blocking

    def write_late(descriptor: int, blocking: bool) -> None:
        set_blocking(descriptor, blocking)
        os.write(program, b"Hello")
        os.close(program)

    monkeypatch.setattr(os, "set_blocking", write_late)
    assert files.read_bounded(Path("pipe")) == b"Hello"


@pytest.mark.parametrize("start", ["", '"""\n'])
def test_an_endless_message_is_refused(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    monkeypatch.setattr(line_input, "MOST_BYTES", 1000)
    result = sharpi("chat", "m.gguf", stdin=start + ("a\n" if start else "a") * 2000)
    assert result.exit_code == 2
    assert result.err.startswith("error: cannot read standard input: it has more than")
    assert result.err.count("\n") == 1


def test_near_file_names(sharpi: CommandLine, empty_cache: Path) -> None:
    (empty_cache / "stories-moe.gguf").touch()
    result = sharpi("plan", "./storiesmoe.gguf")
    assert result.exit_code == 1
    assert result.err == ("error: storiesmoe.gguf: no such file; did you mean stories-moe.gguf?\n")


class TestNotes:
    @pytest.mark.parametrize("flag", ["--think", "--no-think"])
    def test_a_switch_that_the_template_has_not(
        self, sharpi: CommandLine, engine: FakeEngine, flag: str
    ) -> None:
        engine.chat_format.can_switch_thinking = False
        result = sharpi("run", "m.gguf", "hi", flag)
        assert f"note: {flag} has no effect: this model's chat template" in result.err
        engine.chat_format.can_switch_thinking = True
        assert "note" not in sharpi("run", "m.gguf", "hi", flag).err

    def test_memory_without_a_unit(self, sharpi: CommandLine) -> None:
        result = sharpi("plan", "--vram", "12")
        assert result.exit_code == 2
        assert result.err.startswith(
            "error: Invalid value for '--vram': '12' is 12 bytes; did you mean 12GiB? See"
        )


@pytest.mark.native
def test_context_beyond_the_trained_one(sharpi: CommandLine) -> None:
    result = sharpi("run", str(demo_model()), "Once", "-n", "1", "-c", "4096")
    assert "note: the model was trained on 512 tokens of context" in result.err
    assert "trained" not in sharpi("run", str(demo_model()), "Once", "-n", "1", "-c", "512").err


@pytest.mark.native
def test_a_reader_that_has_enough_is_no_failure() -> None:
    script = f'set -o pipefail; "{sys.executable}" -m sharpi run -n 200 -p Once | head -c 1'
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"O")
