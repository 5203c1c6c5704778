"""A model whose layers several parts run gives the same bits as one part with all of them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from mixed_model import BLOCKS, DEMO, mixer, rewrite
from reference_ops import ReferenceOps
from requantise import copy_metadata, write
from test_expert_slots import assert_same_as_mapped

from sharpi.engine.backends.cpu_part import CpuPart
from sharpi.engine.backends.recorded_part import ModelMemory, PartModel
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.runner import Runner
from sharpi.engine.sequence import Sequence
from sharpi.gguf.quant_types import QuantType
from sharpi.model.transformer import Transformer
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
        CpuPart(
            PartModel(
                config,
                weights,
                settings,
                layers,
                embeds=layers.start == 0,
                has_output=layers == end,
            )
        )
        for layers in [*ranges(engine), end]
    ]
    has_states = bool(config.states)
    memory = ModelMemory(parts, None, None, drops_windows=False)
    return Runner(settings, weights.output.rows, parts, memory, has_states=has_states)


@pytest.mark.slow
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


Load = Callable[..., Engine]
IDS = np.random.default_rng(5).integers(3, 1000, 30).astype(np.int32)


def relative_error(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def exact_logits(engine: Engine) -> np.ndarray:
    """Returns exact logits: all in float32, even keys and values, which the engine rounds."""
    ops = ReferenceOps()
    ops.begin(IDS.tolist(), 0, range(len(IDS)))
    weights = load_weights(engine.file, engine.model_config)
    return np.array(Transformer(engine.model_config, weights, ops).step())


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, len(BLOCKS) - 18], ids=["old types", "new types"])
def test_each_role_and_layer_has_its_type(first: int, load: Load, tmp_path: Path) -> None:
    made = rewrite(tmp_path, mixer(first))
    engine = load(made.plain, precision="f32")
    plain, exact = np.array(engine.logits(IDS)), exact_logits(engine)
    assert relative_error(load(made.mixed, precision="f32").logits(IDS), plain) < 1e-5
    assert_same_as_mapped(load, made.mixed, IDS, "int8")  # may choose other experts than plain
    # Keys and values are rounded to fp16, in a direction that depends on the last bits of what
    # comes before: two runs differ by as much as either is off. So each is compared with exact
    # logits.
    int16 = relative_error(assert_same_as_mapped(load, made.mixed, IDS, "int16"), exact)
    assert int16 < relative_error(plain, exact) + 2e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [QuantType.IQ1_M, QuantType.NVFP4],
    ids=lambda kind: kind.name,
)
def test_one_type_for_every_matrix(kind: QuantType, load: Load, tmp_path: Path) -> None:
    matrices = ("attn_q.", "attn_k.", "attn_v.", "attn_output.", "_exps.", "output.weight")

    def choose(name: str) -> QuantType | None:
        return kind if any(part in name for part in matrices) and "norm" not in name else None

    made = rewrite(tmp_path, choose)
    plain = np.array(load(made.plain, precision="f32").logits(IDS))
    engine = load(made.mixed, precision="f32")
    assert relative_error(engine.logits(IDS), plain) < 1e-4
    assert engine.notes == load(made.plain).notes


@pytest.mark.slow
def test_slots_of_experts_in_many_parts(load: Load, tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "model.gguf", "qwen3moe", split_max_tensors=4)
    reader = GGUFReader(DEMO)
    copy_metadata(reader, writer)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    write(writer)
    parts = sorted(tmp_path.glob("model-*.gguf"))
    assert len(parts) == -(-len(reader.tensors) // 4)
    whole = np.array(load(DEMO, precision="int8").logits(IDS))
    for part in (parts[0], parts[7]):
        assert np.array_equal(assert_same_as_mapped(load, part, IDS, "int8"), whole)
