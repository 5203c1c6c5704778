"""`sharpi logits`: the id files that it accepts, and its output, which is complete or absent."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine
from fake_engine import FakeEngine


def saved(path: Path, ids: Any) -> Path:
    np.save(path, ids)
    return path


def logits(sharpi: CommandLine, ids: Path, output: Path, *flags: str) -> Any:
    return sharpi("logits", "m.gguf", "--tokens", str(ids), "--output", str(output), *flags)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16", ">i4", "uint64"])
def test_writes_float32_rows(
    sharpi: CommandLine, engine: FakeEngine, tmp_path: Path, dtype: str
) -> None:
    output = tmp_path / "out.npy"
    result = logits(sharpi, saved(tmp_path / "ids.npy", np.array([3, 0, 299], dtype)), output)
    assert (result.exit_code, result.out) == (0, "")
    values = np.load(output)
    assert (values.dtype, values.shape) == (np.float32, (3, 4))
    assert values[:, 0].tolist() == [3, 0, 299]
    assert engine.config.context_size == 3


def test_name_is_taken_as_it_is(sharpi: CommandLine, engine: FakeEngine, tmp_path: Path) -> None:
    logits(sharpi, saved(tmp_path / "ids.npy", [1]), tmp_path / "out.bin", "--precision", "f32")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ids.npy", "out.bin"]
    assert engine.config.precision == "f32"


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.arange(3))
    return buffer.getvalue()


def with_shape(shape: bytes) -> bytes:
    """Returns an .npy file of three ids with another shape in its header."""
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    return buffer.getvalue().replace(b"(3,), }" + b" " * (len(shape) - 4), shape + b", }")


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], dtype=object), allow_pickle=True)
    return buffer.getvalue()


BAD = [
    b"",
    b"no array at all",
    npz(),
    with_shape(b"(99,)"),
    with_shape(b"(9999999999999,)"),
    with_shape(b"(-3,)"),
    with_shape(b"(99"),
    pickled(),
    np.zeros((2, 2), int),
    np.zeros(3),
    np.zeros(3, bool),
    np.zeros(0, int),
    np.int64(3),
    np.array([1, -1]),
    np.array([1, 300]),
    np.array([1, 2**63], np.uint64),
]


@pytest.mark.parametrize("content", BAD, ids=range(len(BAD)))
def test_bad_ids_are_one_line_and_leave_no_output(
    sharpi: CommandLine, engine: FakeEngine, tmp_path: Path, content: Any
) -> None:
    ids = tmp_path / "ids.npy"
    ids.write_bytes(content) if isinstance(content, bytes) else saved(ids, content)
    result = logits(sharpi, ids, tmp_path / "out.npy")
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert str(ids) in result.err or "token ids" in result.err
    assert list(tmp_path.iterdir()) == [ids]


def test_missing_ids(sharpi: CommandLine, engine: FakeEngine, tmp_path: Path) -> None:
    result = logits(sharpi, tmp_path / "ids.npy", tmp_path / "out.npy")
    assert (result.exit_code, result.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("output", ["/no/such/folder/out.npy", "/dev/null", "/"])
def test_output_that_cannot_be_written_is_found_out_first(
    sharpi: CommandLine, engine: FakeEngine, tmp_path: Path, output: str
) -> None:
    result = logits(sharpi, saved(tmp_path / "ids.npy", [1]), Path(output))
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert output in result.err
    assert engine.config is None
    assert Path("/dev/null").is_char_device()


def test_interrupted_work_keeps_the_old_output(
    sharpi: CommandLine, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.npy"
    output.write_text("old")

    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "logits", interrupt)
    result = logits(sharpi, saved(tmp_path / "ids.npy", [1]), output)
    assert (result.exit_code, output.read_text()) == (130, "old")
    assert len(list(tmp_path.iterdir())) == 2


def test_link_is_written_through(sharpi: CommandLine, engine: FakeEngine, tmp_path: Path) -> None:
    link = tmp_path / "link.npy"
    link.symlink_to(tmp_path / "real.npy")
    logits(sharpi, saved(tmp_path / "ids.npy", [1]), link)
    assert link.is_symlink()
    assert np.load(tmp_path / "real.npy").shape == (1, 4)


def test_an_input_is_not_replaced(sharpi: CommandLine, engine: FakeEngine, tmp_path: Path) -> None:
    ids = saved(tmp_path / "ids.npy", [1])
    result = logits(sharpi, ids, ids)
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert "would replace the input" in result.err
    assert np.load(ids).tolist() == [1]
