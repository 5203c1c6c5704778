"""Contests: token ids, settings by name, and what a worker times."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contest.contestant import sharpi_options, token_ids
from contest.worker_loop import _timed

from sharpi.errors import UsageError
from sharpi.gguf.reader import GgufFile, open_gguf

DEMO = Path(__file__).parents[2] / "models/demo/stories-moe.gguf"


@pytest.fixture(scope="module")
def model() -> Iterator[GgufFile]:
    with open_gguf(DEMO) as file:
        yield file


def test_random_ids_repeat(model: GgufFile) -> None:
    ids = token_ids(model, 300, None)
    assert ids == token_ids(model, 300, None)
    assert len(set(ids)) > 100


def test_ids_of_files(model: GgufFile, tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(9, dtype=np.uint16))
    assert token_ids(model, 4, tmp_path / "ids.npy") == [0, 1, 2, 3]
    (tmp_path / "story.txt").write_text("Once upon a time there was a little girl.")
    assert token_ids(model, 8, tmp_path / "story.txt")[:4] == token_ids(
        model, 4, tmp_path / "story.txt"
    )


def test_files_that_do_not_serve(model: GgufFile, tmp_path: Path) -> None:
    for name, ids, message in (
        ("short", [1], "1 token ids, but 4"),
        ("high", [1, 2, 3, 10**6], "must be 0"),
        ("low", [-1, 2, 3, 4], "must be 0"),
    ):
        np.save(tmp_path / name, np.array(ids))
        with pytest.raises(UsageError, match=f"{name}.npy: .*{message}"):
            token_ids(model, 4, tmp_path / f"{name}.npy")
    with pytest.raises(UsageError, match=r"none\.txt: no token ids or text"):
        token_ids(model, 4, tmp_path / "none.txt")


def test_values_have_their_types() -> None:
    assert sharpi_options(["ram=2GB", "moe_slots=8", "policy=slru", "prefetch=false"]) == {
        "ram": 2_000_000_000,
        "moe_slots": 8,
        "experts": {"policy": "slru", "prefetch": False},
    }


@pytest.mark.parametrize("text", ["polic=slru", "model=x", "num_threads=1", "experts=1", "=", ""])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no such setting"):
        sharpi_options([text])


class CountingModel:
    """Counts its tokens."""

    def __init__(self) -> None:
        self.description: dict[str, Any] = {}
        self.passes: list[list[int]] = []
        self.length = 0

    def compute(self, ids: list[int]) -> None:
        self.passes.append(ids)
        self.length += len(ids)

    def truncate(self, length: int) -> None:
        self.length = length

    def counts(self) -> dict[str, float]:
        return {"tokens": sum(map(len, self.passes))}


def test_a_turn() -> None:
    model = CountingModel()
    answer = _timed(model, before=[1, 2], ids=[3, 4, 5], pass_size=2)
    assert model.passes == [[1, 2], [3, 4], [5]]
    assert model.length == 0
    assert answer["counts"]["tokens"] == 3
    assert len(answer["pass_seconds"]) == 2
    assert 0 < sum(answer["pass_seconds"]) <= answer["seconds"]
