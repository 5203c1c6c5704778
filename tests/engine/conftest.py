"""Engines over the small random models that `transformers` was run on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sharpi.config import RunConfig
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine

REFERENCES = Path(__file__).parents[1] / "references"


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
