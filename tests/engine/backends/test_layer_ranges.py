"""A model whose layers several parts run gives the same bits as one part with all of them."""

from pathlib import Path

import numpy as np
import pytest

from sharpi.engine.backends.cpu_part import CpuPart
from sharpi.engine.backends.recorded_part import ModelMemory
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.runner import Runner
from sharpi.engine.sequence import Sequence
from sharpi.model.weights import load_weights
from sharpi.settings import RunConfig
from sharpi.tiers.facts import read_facts
from sharpi.tiers.layer_division import first_layers

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
CASES = sorted(path.stem for path in REFERENCES.glob("*.npz"))


def ranges(engine: Engine) -> list[range]:
    """Returns ranges that divide the layers, at most three."""
    starts = first_layers(read_facts(engine.file, engine.model_config))
    firsts = [0, *starts[1:][-2:]]
    return [
        range(first, end)
        for first, end in zip(firsts, [*firsts[1:], engine.model_config.num_layers], strict=True)
    ]


def split_runner(engine: Engine) -> Runner:
    """A runner with a part for each range, and one for the output."""
    config, settings = engine.model_config, engine.runner.settings
    weights = load_weights(engine.file, config)
    end = range(config.num_layers, config.num_layers)
    parts = [
        CpuPart(config, weights, settings, layers=layers, has_output=layers == end)
        for layers in [*ranges(engine), end]
    ]
    has_states = bool(config.states)
    memory = ModelMemory(parts, None, None, drops_windows=False)
    return Runner(settings, weights.output.rows, parts, memory, has_states=has_states)


@pytest.mark.parametrize("case", CASES)
def test_split_layers_give_the_same_bits(case: str) -> None:
    with load_engine(RunConfig(REFERENCES / f"{case}.gguf", context_size=64)) as engine:
        ids = (np.arange(3, 43) * 7 % engine.runner.vocab_size).tolist()
        split = split_runner(engine)
        try:
            whole, parts = Sequence(engine.runner), Sequence(split)
            np.testing.assert_array_equal(
                parts.extend_scored(ids[:33]), whole.extend_scored(ids[:33])
            )
            for token in ids[33:]:
                np.testing.assert_array_equal(parts.extend([token]), whole.extend([token]))
            assert parts.extend_largest(5) == whole.extend_largest(5)
        finally:
            split.close()


def test_most_families_can_be_split_in_two() -> None:
    with load_engine(RunConfig(REFERENCES / "gemma3.gguf", context_size=64)) as engine:
        assert len(ranges(engine)) == 3
    with load_engine(RunConfig(REFERENCES / "gemma4-e2b.gguf", context_size=64)) as engine:
        starts = first_layers(read_facts(engine.file, engine.model_config))
        assert starts[-1] < engine.model_config.num_layers - 1  # later layers share its keys
