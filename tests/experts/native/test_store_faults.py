"""A file that fails during a run gives an error that names it, and never a wrong expert."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from expert_files import EXPERTS, ExpertFiles, K, SteppedStore, assert_right, open_store

from sharpi.errors import ModelFileError

pytestmark = pytest.mark.native
LAYER = 3


@pytest.fixture
def files(tmp_path: Path) -> ExpertFiles:
    return ExpertFiles(tmp_path)


@pytest.fixture(params=[True, False], ids=["direct", "buffered"])
def store(files: ExpertFiles, request: pytest.FixtureRequest) -> Iterator[SteppedStore]:
    made = open_store(files, slots=2, staging=K + 3, direct=request.param)
    yield made
    made.close()
    made.policy.close()


def acquire(store: SteppedStore, *experts: int) -> None:
    store.acquire(LAYER, np.array([experts]))


def assert_fails(store: SteppedStore, expert: int, words: str) -> None:
    with pytest.raises(ModelFileError, match=words) as caught:
        store.wait(LAYER, expert)
    assert "\n" not in str(caught.value)
    assert "start again" in str(caught.value)


def descriptor_of(path: Path) -> int:
    """Returns the store's own file descriptor, found among those of the process."""
    for name in os.listdir("/proc/self/fd"):
        if Path(f"/proc/self/fd/{name}").exists() and os.readlink(f"/proc/self/fd/{name}") == str(
            path
        ):
            return int(name)
    raise AssertionError(path)


def test_a_file_that_shrinks(files: ExpertFiles, store: SteppedStore) -> None:
    acquire(store, 0, 1)
    assert_right(store, files, LAYER, 0)
    store.release(LAYER)
    os.truncate(files.paths[1], 10_000)
    acquire(store, 0, 7)
    assert_fails(store, 7, r"b\.gguf: the file changed while it was in use")
    assert_right(store, files, LAYER, 0)  # in its slot since before
    store.release(LAYER)


def test_a_file_that_is_written_to(files: ExpertFiles, store: SteppedStore) -> None:
    with files.paths[0].open("r+b") as file:
        file.write(b"other")
    os.utime(files.paths[0], ns=(1, 1))
    acquire(store, 2, 3)
    assert_fails(store, 3, r"a\.gguf: the file changed")


def test_a_deleted_file_is_read_on(files: ExpertFiles, store: SteppedStore) -> None:
    for path in files.paths:
        path.unlink()
    acquire(store, 2, 3)
    for expert in (2, 3):
        assert_right(store, files, LAYER, expert)


def test_a_file_that_another_takes_the_place_of(files: ExpertFiles, store: SteppedStore) -> None:
    other = files.paths[0].with_name("other")
    other.write_bytes(bytes(files.paths[0].stat().st_size))
    other.replace(files.paths[0])
    acquire(store, 4, 5)
    assert_right(store, files, LAYER, 4)


def test_a_read_error_and_its_end(files: ExpertFiles, store: SteppedStore) -> None:
    """Every waiting thread gets the same error, and the right bytes once the disk works again."""
    ours = descriptor_of(files.paths[0])
    kept, unreadable = os.dup(ours), os.open(files.paths[0], os.O_WRONLY)
    os.dup2(unreadable, ours)
    acquire(store, 0, 1)
    for expert in (0, 1, 0):
        assert_fails(store, expert, r"a\.gguf: cannot be read \(Bad file descriptor\)")
    store.release(LAYER)
    os.dup2(kept, ours)
    acquire(store, 0, 1)
    for expert in (0, 1):
        assert_right(store, files, LAYER, expert)
    os.close(kept)
    os.close(unreadable)


def test_a_failing_prefetch_harms_nobody(files: ExpertFiles, store: SteppedStore) -> None:
    ours = descriptor_of(files.paths[0])
    kept, unreadable = os.dup(ours), os.open(files.paths[0], os.O_WRONLY)
    os.dup2(unreadable, ours)
    store.prefetch(LAYER, [6])
    while not store.totals().failed_prefetches:
        pass
    os.dup2(kept, ours)
    assert "cannot be read" in (store.last_fault() or "")
    acquire(store, 6, 7)
    for expert in (6, 7):
        assert_right(store, files, LAYER, expert)
    assert store.counts()[LAYER].prefetch_used == 0
    assert store.totals().failed_prefetches == 1
    os.close(kept)
    os.close(unreadable)


def test_everything_closes_in_the_middle_of_reads(files: ExpertFiles) -> None:
    for _ in range(20):
        store = open_store(files, slots=EXPERTS, staging=K)
        acquire(store, *range(EXPERTS))
        store.close()
        store.policy.close()
        with pytest.raises(ValueError, match="closed"):
            _ = store.handle
