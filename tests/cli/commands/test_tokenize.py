"""`sharpi tokenize`: ids of text from an argument or stdin, with and without BOS and specials."""

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from tiny_vocabulary import BOS_ID, MERGED_ID, SPECIAL, SPECIAL_ID, write_vocabulary


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_vocabulary(tmp_path_factory.mktemp("model") / "v.gguf", add_bos=True))


def ids(text: str) -> list[int]:
    return [int(each) for each in text.split()]


def test_ids_on_one_line(sharpi: CommandLine, model: str) -> None:
    result = sharpi("tokenize", model, "abc")
    assert (result.exit_code, result.out) == (0, f"{BOS_ID} {MERGED_ID} {ord('c')}\n")


def test_json(sharpi: CommandLine, model: str) -> None:
    result = sharpi("tokenize", model, "abc", "--json", "--no-bos")
    assert json.loads(result.out) == {"ids": [MERGED_ID, ord("c")]}


def test_special_tokens(sharpi: CommandLine, model: str) -> None:
    assert ids(sharpi("tokenize", model, "--no-bos", f"x{SPECIAL}").out) == [ord("x"), SPECIAL_ID]
    plain = ids(sharpi("tokenize", model, "--no-bos", "--no-special", f"x{SPECIAL}").out)
    assert plain == list(f"x{SPECIAL}".encode())


@pytest.mark.parametrize("arguments", [[], ["-"]])
@pytest.mark.parametrize("data", [b" a\r\n\n", "\ufeffé\n".encode(), b"", b"\n"])
def test_stdin_byte_for_byte(
    sharpi: CommandLine, model: str, arguments: list[str], data: bytes
) -> None:
    result = sharpi("tokenize", model, *arguments, "--no-bos", stdin=data)
    assert (result.exit_code, ids(result.out)) == (0, list(data))


def test_bos_only_where_the_vocabulary_wants_it(sharpi: CommandLine, tmp_path: Path) -> None:
    plain = write_vocabulary(tmp_path / "plain.gguf", add_bos=False)
    assert ids(sharpi("tokenize", str(plain), "c").out) == [ord("c")]


def test_bytes_that_are_not_text(sharpi: CommandLine, model: str) -> None:
    result = sharpi("tokenize", model, stdin=b"ab\xff")
    assert (result.exit_code, result.out) == (2, "")
    assert result.err == "error: standard input is not UTF-8 text: byte 0xff at offset 2\n"
    assert "offset 1" in sharpi("tokenize", model, "a\udcff").err


def test_terminal_without_text(
    sharpi: CommandLine, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharpi.cli.commands.given_tokens.stdin_is_terminal", lambda: True)
    assert sharpi("tokenize", model).exit_code == 2


@pytest.mark.parametrize("command", ["tokenize", "inspect"])
def test_bad_files_are_one_line(sharpi: CommandLine, tmp_path: Path, command: str) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    for name in ("text.gguf", "missing.gguf", "."):
        result = sharpi(command, str(tmp_path / name), stdin="x")
        assert (result.exit_code, result.out, result.err.count("\n")) == (1, "", 1)
        assert name in result.err
