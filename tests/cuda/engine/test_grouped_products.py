"""Large batches multiply experts in bf16 where the device can, within what that rounds."""

from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice

from sharpi.config import RunConfig
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.ops.cuda.recorder import feed_forward_calls, grouped_products
from sharpi.resources import demo_model

pytestmark = pytest.mark.native
IDS = [1, *np.random.default_rng(3).integers(3, 2000, 33).tolist()]


class Counting(CpuDevice):
    """Counts the grouped products."""

    calls = 0

    def grouped_matmul(self, *given: Any) -> None:
        self.calls += 1
        super().grouped_matmul(*given)


@pytest.fixture(autouse=True)
def few_tokens_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (grouped_products, feed_forward_calls):
        monkeypatch.setattr(module, "GROUPED_PRODUCT_TOKENS", len(IDS))


def logits_of(has: bool = True, **options: Any) -> tuple[np.ndarray, int]:
    device = Counting(check=False, has_grouped_products=has)
    config = RunConfig(
        model=demo_model(), device="cuda", context_size=64, **{"batch_size": 48, **options}
    )
    engine = load_engine(config, open_device=lambda _: device)
    sequence = Sequence(engine.runner)
    logits = np.stack([sequence.extend(IDS), sequence.extend([5])])
    engine.close()
    return logits, device.calls


def test_values_are_those_of_tiles_within_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, none = logits_of(has=False)
    found, calls = logits_of()
    assert none == 0 < calls
    error = np.linalg.norm(found - wanted, axis=-1) / np.linalg.norm(wanted, axis=-1)
    assert (error < 0.03).all()
    monkeypatch.setattr(grouped_products, "_WEIGHT_BYTES", 1)
    one_by_one, more = logits_of()
    assert more > calls
    np.testing.assert_array_equal(one_by_one, found)


@pytest.mark.parametrize(
    "options",
    [{"disabled": ("grouped-products",)}, {"batch_size": 32}, {"precision": "f32"}],
    ids=str,
)
def test_what_does_without(options: dict[str, Any]) -> None:
    assert logits_of(**options)[1] == 0
