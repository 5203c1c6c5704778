"""A model file that fails while experts are read gives an error that names it, no wrong token."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
from streamed_models import DEMO, GREEDY, PROMPT, decode, write_mixed_model

from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.errors import ModelFileError
from sharpi.settings import RunConfig

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
Fault = Callable[[Path], AbstractContextManager[None]]
OTHER_PROMPT = PROMPT[::-1]


@contextmanager
def cut(path: Path, num_bytes: int) -> Iterator[None]:
    """Cuts the file, and makes it whole again afterwards."""
    data, times = path.read_bytes(), path.stat()
    os.truncate(path, num_bytes)
    yield
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def half(path: Path) -> AbstractContextManager[None]:
    return cut(path, path.stat().st_size // 2)


def empty(path: Path) -> AbstractContextManager[None]:
    return cut(path, 0)


@contextmanager
def touched(path: Path) -> Iterator[None]:
    """Changes the file's time, as a rewrite of the open file would; restores it at the end."""
    times = path.stat()
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))
    yield
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Makes every read fail, as on a broken disk: the open files become a folder."""
    opened = [int(link.name) for link in Path("/proc/self/fd").iterdir() if leads_to(link, path)]
    assert opened
    kept = [os.dup(each) for each in opened]
    folder = os.open(path.parent, os.O_RDONLY)
    for each in opened:
        os.dup2(folder, each, inheritable=False)
    yield
    for whole, each in zip(kept, opened, strict=True):
        os.dup2(whole, each, inheritable=False)
        os.close(whole)
    os.close(folder)


def leads_to(link: Path, path: Path) -> bool:
    return link.is_symlink() and os.path.realpath(link) == os.path.realpath(path)


FAULTS = [half, empty, touched]
if Path("/proc/self/fd").is_dir():
    FAULTS.append(unreadable)


@pytest.fixture(scope="module")
def wanted() -> tuple[list[int], list[int]]:
    """Returns the right continuations of both prompts."""
    with load_engine(RunConfig(DEMO, context_size=256)) as engine:
        return decode(engine), decode(engine, OTHER_PROMPT)


@pytest.fixture
def model(quick_folder: Path) -> Iterator[Path]:
    """Yields a copy of the demo model that may be damaged."""
    path = quick_folder / "harmed.gguf"
    path.write_bytes(DEMO.read_bytes())
    yield path
    path.unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_decoding(
    fault: Fault, slots: int, model: Path, load: Load, wanted: tuple[list[int], list[int]]
) -> None:
    engine = load(model, moe_slots=slots, context_size=256)
    session = engine.session()
    generation = session.generate(PROMPT, GREEDY)
    while len(generation.ids) < 5:
        next(generation)
    with fault(model):
        assert_fails(lambda: list(generation), model)
        assert generation.ids == wanted[0][: len(generation.ids)]
        assert len(generation.ids) < len(wanted[0])
        assert_fails(lambda: decode(session), model)
        assert_fails(lambda: decode(engine, OTHER_PROMPT), model)
    assert decode(session) == wanted[0]
    assert decode(engine, OTHER_PROMPT) == wanted[1]
    stats = engine.expert_stats()
    assert stats is not None
    assert any("a read failed" in note for note in stats.notes)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_prompt(
    fault: Fault, model: Path, load: Load, wanted: tuple[list[int], list[int]]
) -> None:
    engine = load(model, moe_slots=2, context_size=256, batch_size=16, num_threads=2)
    session = engine.session()
    with fault(model):
        assert_fails(lambda: decode(session), model)
        assert_fails(lambda: engine.logits(np.array(PROMPT, np.int32)), model)
        assert session.tokens == []
    assert decode(session) == wanted[0]


def assert_fails(act: Callable[[], object], path: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        act()
    assert str(path) in str(caught.value)
    assert "start again" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_without_a_name_stays_open(
    model: Path, load: Load, wanted: tuple[list[int], list[int]]
) -> None:
    engine = load(model, moe_slots=2, context_size=256)
    generation = engine.session().generate(PROMPT, GREEDY)
    next(generation)
    model.unlink()
    list(generation)
    assert generation.ids == wanted[0]


def test_biases_of_experts_do_not_stay_in_the_file(load: Load, tmp_path: Path) -> None:
    model = write_mixed_model(tmp_path / "mixed.gguf")
    ids = np.arange(20, dtype=np.int32)
    engine = load(model, moe_slots=1)
    right = engine.logits(ids)
    with half(model), pytest.raises(ModelFileError):
        engine.logits(ids)
    assert np.array_equal(engine.logits(ids), right)


def test_a_file_that_is_cut_before_the_start(model: Path, load: Load) -> None:
    with half(model), pytest.raises(ModelFileError, match=r"harmed\.gguf"):
        load(model, moe_slots=2)
