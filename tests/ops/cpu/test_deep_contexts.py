"""Positions near a million: addressed right, without memory for those that are never touched."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay import Native, matrix

from sharpi.ops.attention_shape import AttentionShape
from sharpi.settings import KvType, KvTypes

pytestmark = pytest.mark.native

POSITIONS, WINDOW = 1 << 20, 64
SHAPE = AttentionShape(0, 5, 5, 256, 256, 0.1, window=WINDOW)
IDS = np.random.default_rng(5).integers(0, 50, 150).tolist()


def resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def attention_without_positions() -> Callable[[Any], Any]:
    """Attention whose result depends only on the distances of tokens, by its window."""
    width = SHAPE.num_heads * SHAPE.key_dim
    tables = [matrix(np.random.default_rng(seed), 50, width) for seed in range(3)]

    def model(ops: Any) -> Any:
        q, k, v = (ops.embed(table, 5.0) for table in tables)
        return ops.select_outputs(ops.attention(q, k, v, SHAPE))

    return model


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_the_last_positions_of_a_million(kind: KvType) -> None:
    before = resident_bytes()
    runs = Native(
        attention_without_positions(),
        [SHAPE],
        precision="f32",
        kv_types=KvTypes(kind, kind),
        max_tokens=len(IDS),
        max_positions=POSITIONS,
    )
    assert runs.cache.num_bytes > (1 << 32 if kind == "f16" else 1 << 31)
    runs.pages.sort()  # so that the last positions have the last pages
    near = runs.run([IDS])
    far = runs.run([IDS], position=POSITIONS - len(IDS))
    # from the first token on that sees a whole window in both runs
    assert np.allclose(near[WINDOW:], far[WINDOW:], rtol=1e-4, atol=1e-5)
    assert resident_bytes() - before < 1 << 29
