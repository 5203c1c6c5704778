"""Decisions about slots in the router's product: the tokens and statistics of separate launches."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice
from short_demo import LAYERS, short_demo

from sharpi.device.launch import Launch
from sharpi.engine.backends.parts import gpu_tier_of
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.settings import ExpertConfig, Miss, RunConfig

pytestmark = pytest.mark.native
PROMPT, NUM_TOKENS = [1, 200, 31, 77, 402, 9], 4


class CountingCpuDevice(CpuDevice):
    """Counts launches by file."""

    def __init__(self) -> None:
        super().__init__(check=False)
        self.launches: Counter[str] = Counter()

    def launch(self, launch: Launch) -> None:
        self.launches[launch.kernel.file] += 1
        super().launch(launch)


def run(asked: ExpertConfig, *disabled: Any) -> tuple[np.ndarray, list[Any], Counter[str]]:
    """Returns the logits of some tokens, what is known of each layer, and their launches."""
    device = CountingCpuDevice()
    config = RunConfig(
        model=short_demo(),
        device="cuda",
        context_size=64,
        moe_slots=4,
        experts=asked,
        disabled=disabled,
    )
    engine = load_engine(config, open_device=lambda _: device)
    sequence = Sequence(engine.runner)
    logits = [sequence.extend(PROMPT)]
    device.launches.clear()
    logits += [sequence.extend([int(np.argmax(logits[-1]))]) for _ in range(NUM_TOKENS)]
    tier, stats = gpu_tier_of(engine.runner.parts), engine.expert_stats()
    assert tier is not None
    assert stats is not None
    known = [
        (tier.residents()[each.layer], each.total.hits, each.bytes_read) for each in stats.layers
    ]
    engine.close()
    return np.stack(logits), known, device.launches


@pytest.mark.parametrize(("policy", "miss"), [("slru", "bus"), ("learned-keep", "cpu")])
def test_tokens_and_residents_are_the_same(policy: str, miss: Miss) -> None:
    asked = ExpertConfig(policy=policy, miss=miss, prefetch=False)
    logits, known, launches = run(asked)
    wanted, expected, apart = run(asked, "folding")
    np.testing.assert_array_equal(logits, wanted)
    assert known == expected
    assert launches["slot_policy"] == launches["route"] == 0 == apart["slot_route"]
    assert launches["slot_route"] == apart["slot_policy"] == apart["route"] == NUM_TOKENS * LAYERS


def test_a_prefetch_comes_between() -> None:
    """A layer whose experts were prefetched waits for them before it decides."""
    asked = ExpertConfig(policy="static", resident="first-n", miss="cpu")
    logits, known, launches = run(asked)
    wanted, expected, _ = run(asked, "folding")
    np.testing.assert_array_equal(logits, wanted)
    assert known == expected
    assert launches["slot_policy"] > 0
