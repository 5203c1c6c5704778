"""Development data outside the repository, for the tests marked `shared`."""

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[3] / "shared"


@pytest.fixture
def shared_folder() -> Path:
    folder = Path(os.environ.get("TESTS_SHARED", _BESIDE))
    if not folder.is_dir():
        pytest.skip("no shared data; SHARPI_SHARED names its folder")
    return folder
