"""Expert profiles: saved, loaded for the same model only, and merged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpi.errors import StatsFileError
from sharpi.experts.profile import ExpertProfile, load_profile, save_profile

USES = np.array([[5, 0, 9, 5], [0, 0, 0, 0], [1, 2, 3, 1 << 40]])
PROFILE = ExpertProfile("tiny.gguf", USES)


def load(path: Path, model: str = "tiny.gguf", shape: tuple[int, int] = (3, 4)) -> ExpertProfile:
    loaded = load_profile(path, model, *shape)
    assert loaded is not None
    return loaded


def test_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "profile"
    assert load_profile(path, "tiny.gguf", 3, 4) is None
    assert save_profile(path, PROFILE) is None
    loaded = load(path)
    assert loaded.model == PROFILE.model
    np.testing.assert_array_equal(loaded.uses, USES)
    assert save_profile(path, PROFILE) is None


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_a_device_without_an_end_is_not_read() -> None:
    with pytest.raises(StatsFileError, match="not a regular file"):
        load(Path("/dev/zero"))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(StatsFileError, match="holds no expert profile"):
        load(path)


def test_ranks_used_experts_only() -> None:
    assert PROFILE.ranked(0) == (2, 0, 3)
    assert PROFILE.ranked(1) == ()
    assert PROFILE.ranked(2) == (3, 2, 1, 0)


def test_the_latest_run_counts_twice() -> None:
    merged = PROFILE.merged(np.ones((3, 4), np.int64))
    assert merged.uses[0].tolist() == [3, 1, 5, 3]


def test_a_bad_path_is_a_warning(tmp_path: Path) -> None:
    warning = save_profile(tmp_path / "none" / "profile", PROFILE)
    assert warning is not None
    assert warning.startswith("the expert profile was not written to ")
    with pytest.raises(StatsFileError, match="not a regular file"):
        load_profile(tmp_path, "tiny.gguf", 3, 4)


@pytest.mark.parametrize(("model", "shape"), [("big.gguf", (3, 4)), ("tiny.gguf", (4, 4))])
def test_a_profile_of_another_model(tmp_path: Path, model: str, shape: tuple[int, int]) -> None:
    path = tmp_path / "profile"
    save_profile(path, PROFILE)
    with pytest.raises(StatsFileError, match=r"tiny\.gguf \(3 layers, 4 experts\), not of"):
        load(path, model, shape)


PLAIN: dict[str, Any] = {"format": "sharpi expert profile", "version": 1, "model": "m"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\udcff",
        "[1]",
        "{}",
        json.dumps(PLAIN),
        json.dumps(PLAIN | {"uses": [[1, -1]]}),
        json.dumps(PLAIN | {"uses": [[1, 0.5]]}),
        json.dumps(PLAIN | {"uses": [[1], [1, 2]]}),
        json.dumps(PLAIN | {"uses": [[float("nan")]]}),
        json.dumps(PLAIN | {"uses": [[1 << 60]]}),
        json.dumps(PLAIN | {"uses": [1]}),
        json.dumps(PLAIN | {"uses": [["x"]]}),
        json.dumps(PLAIN | {"uses": [[1]], "model": 5}),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "profile"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(StatsFileError, match="holds no expert profile; remove it, or name another"):
        load_profile(path, "m", 1, 1)


def test_another_version(tmp_path: Path) -> None:
    path = tmp_path / "profile"
    path.write_text(json.dumps(PLAIN | {"version": 2, "uses": [[1]]}))
    with pytest.raises(StatsFileError, match="version 2; this sharpi reads version 1"):
        load_profile(path, "m", 1, 1)
