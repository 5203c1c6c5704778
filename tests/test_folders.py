"""No folder is longer than a reader takes in at one look."""

import subprocess
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
MOST_FILES = 25
# One file for each architecture, and one for each answer that the tests compare with.
DATA = {"models", "tests/references/data"}


def test_no_folder_has_more_than_25_files() -> None:
    counts = Counter(str(PurePosixPath(name).parent) for name in _kept_files())
    too_long = {folder: n for folder, n in counts.items() if n > MOST_FILES}
    assert set(too_long) <= DATA, too_long


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest could not import both."""
    names = Counter(PurePosixPath(name).name for name in _kept_files() if name.startswith("tests/"))
    assert not [name for name, n in names.items() if n > 1 and name.startswith("test_")]


def _kept_files() -> list[str]:
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("the tree is no git checkout")
    # What tells Python that a folder is a package is nothing to read.
    return [name for name in listing.stdout.splitlines() if not name.endswith("__init__.py")]
