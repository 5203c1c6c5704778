"""Engines over the small random models that `transformers` was run on."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.settings import RunConfig

REFERENCES = Path(__file__).parents[1] / "references" / "data"
DEMO = Path(__file__).parents[2] / "models" / "demo" / "stories-moe.gguf"
RAM_DISK = Path("/dev/shm")


@pytest.fixture
def load() -> Iterator[Callable[..., Engine]]:
    """Loads engines with RunConfig's fields as keywords, and closes them afterwards."""
    engines: list[Engine] = []

    def load_one(model: str | Path, **options: object) -> Engine:
        path = model if isinstance(model, Path) else REFERENCES / f"{model}.gguf"
        engines.append(load_engine(RunConfig(model=path, **options)))  # type: ignore[arg-type]
        return engines[-1]

    yield load_one
    for engine in engines:
        engine.close()


@pytest.fixture(scope="session")
def quick_folder() -> Iterator[Path]:
    """Returns a folder in RAM, if there is one, so that reads end at once."""
    has_one = RAM_DISK.is_dir() and os.access(RAM_DISK, os.W_OK)
    with TemporaryDirectory(prefix="sharpi-", dir=RAM_DISK if has_one else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def quick_demo(quick_folder: Path) -> Path:
    """Returns the demo model in that folder."""
    return Path(shutil.copy(DEMO, quick_folder))
