"""Marks tests by where they are and what they use, so that `make quick` can leave some out."""

import atexit
import contextlib
import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

# One thread for NumPy's products: a second one spins while it waits for a core that runs tests too,
# and tripled the time of the kernels' tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Programs that tests start end when their terminal hangs up, also where nohup started the tests:
# what was ignored stays ignored in them, and what was handled does not.
signal.signal(signal.SIGHUP, lambda *_: None)
# Nothing that a test starts may write the developer's own history, log or cache.
for _name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
    os.environ[_name] = tempfile.mkdtemp(prefix="sharpi-tests-")
    atexit.register(shutil.rmtree, os.environ[_name], ignore_errors=True)

# The folder of shared data is the tests' own: `sharpi` notes every SHARPI_* variable it lacks.
if "SHARPI_SHARED" in os.environ:
    os.environ["TESTS_SHARED"] = os.environ.pop("SHARPI_SHARED")

# No test that is not of speed asserts a time, which hypothesis does by default; gpu_check has none.
with contextlib.suppress(ImportError):
    from hypothesis import settings

    settings.register_profile("sharpi", deadline=None, max_examples=40)
    settings.load_profile("sharpi")

TESTS = Path(__file__).parent
MARK_OF_FOLDER = {"cuda": "cuda", "processors": "emulated"}
MARK_OF_FIXTURE = {"emulated_processors": "emulated", "browser": "browser"}


# Ten thousand tests and their modules live to the end: nobody has to look for garbage among them.
gc.disable()


def pytest_collection_finish() -> None:
    """Excludes the objects of the collection from all later garbage collections."""
    gc.freeze()
    gc.enable()
    # A server that unloads its model unfreezes all: half a second of collecting, each time.
    gc.unfreeze = lambda: None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Adds the marks, before any test is selected by them."""
    for mark in marks_of(item):
        item.add_marker(mark)


def marks_of(item: pytest.Item) -> set[str]:
    """The marks of the folder that a test is in and of the fixtures that it needs."""
    names = getattr(item, "fixturenames", ())
    fixtures = {MARK_OF_FIXTURE[each] for each in names if each in MARK_OF_FIXTURE}
    folder = item.path.relative_to(TESTS).parts[0]
    return fixtures | ({MARK_OF_FOLDER[folder]} if folder in MARK_OF_FOLDER else set())
