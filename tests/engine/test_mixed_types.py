"""Files of many quant types: another one in each layer and role, in one file or in parts."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from random_weights import as_floats, random_weights
from requantise import copy_metadata, write
from streamed_models import DEMO
from test_expert_slots import assert_same_as_mapped

from sharpi.engine.engine import Engine
from sharpi.gguf.quant_types import QuantType
from sharpi.model.tensors import SUPPORTED_TYPES

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
IDS = np.random.default_rng(5).integers(3, 1000, 30).astype(np.int32)
# The gguf package knows neither name nor size of a type that is younger than it.
WRITABLE = sorted(t for t in SUPPORTED_TYPES if t in list(GGMLQuantizationType))
BLOCKS = [t for t in WRITABLE if t not in (QuantType.F32, QuantType.F16, QuantType.BF16)]
_LARGEST_SCALE = {QuantType.Q8_0: 0.002, QuantType.TQ1_0: 0.1, QuantType.TQ2_0: 0.1}


class Rewriter:
    """Writes the demo model with other weights, and beside it what they mean in F32."""

    def __init__(self, folder: Path) -> None:
        self.mixed, self.plain = folder / "mixed.gguf", folder / "plain.gguf"
        self.source = GGUFReader(DEMO)
        self._writers = GGUFWriter(self.mixed, "qwen3moe"), GGUFWriter(self.plain, "qwen3moe")
        for writer in self._writers:
            copy_metadata(self.source, writer)

    def keep(self, name: str, data: np.ndarray, kind: GGMLQuantizationType) -> None:
        for writer in self._writers:
            writer.add_tensor(name, data, raw_dtype=kind)

    def put(self, name: str, kind: QuantType, shape: Sequence[int], factors: np.ndarray) -> None:
        """Random blocks; `factors`, one a matrix of the shape, become a tensor of their own."""
        rows, columns = int(np.prod(shape[:-1])), shape[-1]
        size = _LARGEST_SCALE.get(kind, 0.01)
        blocks = random_weights(kind, rows, columns, seed=len(name), largest_scale=size)
        mixed, plain = self._writers
        theirs = GGMLQuantizationType(kind)
        mixed.add_tensor(name, blocks.reshape(*shape[:-1], -1), raw_dtype=theirs)
        if (factors != 1).any():
            for suffix, values in (("scale", factors), ("input_scale", 7 * factors)):
                mixed.add_tensor(name.replace("weight", suffix), values.astype(np.float32))
        dense = as_floats(kind, blocks).reshape(len(factors), -1) * factors[:, None]
        plain.add_tensor(name, dense.reshape(shape).astype(np.float32))

    def finish(self) -> "Rewriter":
        for writer in self._writers:
            write(writer)
        return self


def rewrite(folder: Path, choose: Callable[[str], QuantType | None]) -> Rewriter:
    """The demo model with random blocks of the chosen type for each matrix, None to keep it."""
    made = Rewriter(folder)
    for tensor in made.source.tensors:
        kind, shape = choose(tensor.name), [int(n) for n in reversed(tensor.shape)]
        if kind is None:
            made.keep(tensor.name, np.array(tensor.data), tensor.tensor_type)
            continue
        factors = np.ones(shape[0] if len(shape) == 3 else 1)
        if kind is QuantType.NVFP4:
            factors = np.random.default_rng(len(shape)).uniform(1e-4, 1e-3, len(factors))
        made.put(tensor.name, kind, shape, factors)
    return made.finish()


def mixer(first: int) -> Callable[[str], QuantType | None]:
    """Types in turn for experts' matrices, so that no two roles and no two layers are alike."""
    turn: Iterator[int] = iter(range(first, 1000))
    return lambda name: BLOCKS[next(turn) % len(BLOCKS)] if "_exps" in name else None


def relative_error(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize("first", [0, len(BLOCKS) - 18], ids=["old types", "new types"])
def test_each_role_and_layer_has_its_type(first: int, load: Load, tmp_path: Path) -> None:
    made = rewrite(tmp_path, mixer(first))
    plain = np.array(load(made.plain, precision="f32").logits(IDS))
    assert relative_error(load(made.mixed, precision="f32").logits(IDS), plain) < 1e-5
    assert_same_as_mapped(load, made.mixed, IDS, "int8")  # may choose other experts than plain
    assert relative_error(assert_same_as_mapped(load, made.mixed, IDS, "int16"), plain) < 1e-3


@pytest.mark.parametrize(
    "kind",
    [QuantType.IQ2_XXS, QuantType.IQ1_M, QuantType.TQ2_0, QuantType.NVFP4],
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
