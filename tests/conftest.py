"""Marks tests by where they are and what they use, so that `make quick` can leave some out."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MARK_OF_FOLDER = {"cuda": "cuda", "processors": "emulated"}
MARK_OF_FIXTURE = {"emulated_processors": "emulated", "browser": "browser"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Adds the marks, before any test is selected by them."""
    for mark in marks_of(item):
        item.add_marker(mark)


def marks_of(item: pytest.Item) -> set[str]:
    """The marks of the folder that a test lies in, and of the fixtures that it needs."""
    folder = item.path.relative_to(TESTS).parts[0]
    fixtures = getattr(item, "fixturenames", ())
    names = {MARK_OF_FIXTURE[each] for each in fixtures if each in MARK_OF_FIXTURE}
    return names | {MARK_OF_FOLDER[folder]} if folder in MARK_OF_FOLDER else names
