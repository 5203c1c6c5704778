"""Models by name at the command line: in `list`, in `rm` and in the commands that open one."""

import json
from pathlib import Path
from typing import NoReturn

import pytest
from cache_folder import write_model, write_partial
from command_line import CommandLine
from fake_engine import FakeEngine

from sharpi.cli.commands import cached_models as rm
from sharpi.errors import UsageError
from sharpi.resources import demo_model
from sharpi.settings import RunConfig

REPO = "org/tiny-GGUF"
NAME = f"{REPO}:Q8_0"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


class TestNames:
    def test_run_opens_it(self, sharpi: CommandLine, engine: FakeEngine, cache: Path) -> None:
        snapshot = write_model(cache, REPO, {"t-Q8_0.gguf": b"x"})
        assert sharpi("run", NAME, "hello", "--raw").exit_code == 0
        assert engine.config.model == snapshot / "t-Q8_0.gguf"
        assert engine.prompt_text() == "hello"

    @pytest.mark.parametrize("arguments", [["-m", NAME, "hello"], [NAME, "-p", "hello"]])
    def test_beside_other_options(
        self, sharpi: CommandLine, engine: FakeEngine, cache: Path, arguments: list[str]
    ) -> None:
        snapshot = write_model(cache, REPO, {"t-Q8_0.gguf": b"x"})
        assert sharpi("run", *arguments, "--raw").exit_code == 0
        assert engine.config.model == snapshot / "t-Q8_0.gguf"

    def test_by_variable_and_alone(
        self,
        sharpi: CommandLine,
        engine: FakeEngine,
        cache: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        snapshot = write_model(cache, REPO, {"t-Q8_0.gguf": b"x"})
        assert sharpi("run", REPO, "--raw", stdin="hello").exit_code == 0
        monkeypatch.setenv("SHARPI_MODEL", NAME)
        assert sharpi("chat", stdin="").exit_code == 0
        assert engine.config.model == snapshot / "t-Q8_0.gguf"

    @pytest.mark.parametrize("command", ["inspect", "tokenize"])
    def test_other_commands_open_it(self, sharpi: CommandLine, cache: Path, command: str) -> None:
        write_model(cache, REPO, {"t-Q8_0.gguf": demo_model().read_bytes()})
        by_name = sharpi(command, NAME, "--json", stdin="Once")
        by_path = sharpi(command, str(demo_model()), "--json", stdin="Once")
        assert by_name.exit_code == by_path.exit_code == 0
        assert json.loads(by_name.out).keys() == json.loads(by_path.out).keys()

    def test_plan_opens_it(
        self, sharpi: CommandLine, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planned: list[Path] = []

        def plan_for(config: RunConfig, file: object) -> NoReturn:
            planned.append(config.model)
            raise UsageError("seen")

        monkeypatch.setattr("sharpi.cli.commands.plan.plan_for", plan_for)
        snapshot = write_model(cache, REPO, {"t-Q8_0.gguf": demo_model().read_bytes()})
        assert sharpi("plan", NAME).err == "error: seen\n"
        assert planned == [snapshot / "t-Q8_0.gguf"]

    def test_an_existing_file_wins(
        self, sharpi: CommandLine, engine: FakeEngine, cache: Path
    ) -> None:
        write_model(cache, REPO, {"t-Q8_0.gguf": b"x"})
        Path("org").mkdir()
        for name in (REPO, NAME):
            Path(name).write_bytes(b"a file of that name")
            sharpi("run", name, "hello")
            assert engine.config.model == Path(name)

    def test_the_choice_is_said(self, sharpi: CommandLine, engine: FakeEngine, cache: Path) -> None:
        write_model(cache, REPO, {"t-Q8_0.gguf": b"x", "t-Q4_K_M.gguf": b"y"})
        assert f"note: {REPO}:Q4_K_M, as no quant was named" in sharpi("run", REPO, "hi").err

    def test_what_is_missing_is_not_downloaded(self, sharpi: CommandLine, cache: Path) -> None:
        result = sharpi("run", NAME, "hello")
        assert (result.exit_code, result.out) == (1, "")
        assert result.err == f"error: {NAME} is not in the cache; type `sharpi pull {NAME}`\n"

    def test_a_close_short_name_is_named(self, sharpi: CommandLine, cache: Path) -> None:
        assert "; did you mean qwen3:3" in (error := sharpi("run", "qwen3:31b", "hello").err)
        assert "? `sharpi pull" in error
        assert "`sharpi models`" in sharpi("pull", "qwen9").err

    @pytest.mark.parametrize("path", ["some.gguf", "./a/b", "/a/b", "a/b/c", "models/missing"])
    def test_a_missing_path_is_still_a_missing_path(
        self, sharpi: CommandLine, cache: Path, path: str
    ) -> None:
        Path("models").mkdir()
        result = sharpi("run", path, "hello")
        assert (result.exit_code, result.err.count("\n")) == (1, 1)
        assert str(Path(path)) in result.err
        assert "no such file" in result.err.lower()
        assert "pull" not in result.err


class TestList:
    def test_nothing(self, sharpi: CommandLine, cache: Path) -> None:
        result = sharpi("list")
        assert (result.exit_code, result.err) == (0, "")
        assert "sharpi pull" in result.out
        assert json.loads(sharpi("list", "--json").out) == {"cache": str(cache), "models": []}

    def test_table(self, sharpi: CommandLine, cache: Path) -> None:
        write_model(cache, REPO, {"t-Q8_0.gguf": b"x" * 2048})
        write_partial(cache, "org/other", "o-Q4_0.gguf", b"123")
        heading, other, tiny = sharpi("list").out.splitlines()
        assert heading.split() == ["name", "size", "modified"]
        assert tiny.split()[:3] == [NAME, "2.0", "KiB"]
        assert other.startswith("org/other:Q4_0")
        assert other.endswith("incomplete")

    def test_json(self, sharpi: CommandLine, cache: Path) -> None:
        snapshot = write_model(cache, REPO, {"t-Q8_0.gguf": b"x" * 2048})
        write_partial(cache, REPO, "t-Q4_0.gguf", b"123")
        part, whole = json.loads(sharpi("list", "--json").out)["models"]
        assert (part["name"], part["complete"], part["path"]) == (f"{REPO}:Q4_0", False, None)
        assert whole["path"] == str(snapshot / "t-Q8_0.gguf")
        assert (whole["name"], whole["quant"], whole["size_bytes"]) == (NAME, "Q8_0", 2048)


class TestRm:
    def test_says_what_was_freed(self, sharpi: CommandLine, cache: Path) -> None:
        write_model(cache, REPO, {"t-Q8_0.gguf": b"x" * 2048, "t-F16.gguf": b"y"})
        result = sharpi("rm", f"{REPO}:q8_0", "-y")
        assert (result.exit_code, result.out) == (0, f"removed {NAME}: 2.0 KiB freed\n")
        assert f"{REPO}:F16" in sharpi("list").out
        assert NAME not in sharpi("list").out

    @pytest.mark.parametrize(("answer", "is_removed"), [("y\n", True), ("\n", False), ("", False)])
    def test_asks_at_a_terminal(
        self,
        sharpi: CommandLine,
        cache: Path,
        monkeypatch: pytest.MonkeyPatch,
        answer: str,
        is_removed: bool,
    ) -> None:
        write_model(cache, REPO, {"t-Q8_0.gguf": b"x"})
        monkeypatch.setattr(rm, "stdin_is_terminal", lambda: True)
        result = sharpi("rm", REPO, stdin=answer)
        assert "[y/N]" in result.err
        assert result.exit_code == (0 if is_removed else 1)
        assert (NAME in sharpi("list").out) is not is_removed

    def test_nobody_to_ask(self, sharpi: CommandLine, cache: Path) -> None:
        write_model(cache, REPO, {"t-Q8_0.gguf": b"x"})
        result = sharpi("rm", NAME)
        assert (result.exit_code, result.err.count("\n")) == (2, 1)
        assert "-y" in result.err
        assert NAME in sharpi("list").out

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (REPO, f"{REPO}:F16, {NAME}; name one"),
            (f"{REPO}:Q4_0", "is not in the cache; did you mean"),
            (f"{REPO}:_0", "not a model name"),
            ("org/tiny-GUF:Q8_0", f"did you mean {NAME}"),
            ("far/away", "`sharpi list` shows"),
        ],
    )
    def test_only_a_name_that_is_there(
        self, sharpi: CommandLine, cache: Path, name: str, message: str
    ) -> None:
        write_model(cache, REPO, {"t-Q8_0.gguf": b"x", "t-F16.gguf": b"y"})
        result = sharpi("rm", name, "-y")
        assert result.exit_code in (1, 2)
        assert message in result.err
        assert len(sharpi("list").out.splitlines()) == 3
