"""Token ids: the same in every call, from a file or a text, and only those of the model."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from contest.token_ids import token_ids

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
