"""Writes the demo model with random blocks of any types, and the same weights in F32."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from random_weights import as_floats, random_weights
from requantise import copy_metadata, write

from sharpi.gguf.quant_types import QuantType
from sharpi.model.tensors import SUPPORTED_TYPES

DEMO = Path(__file__).parents[2] / "models" / "demo" / "stories-moe.gguf"
# The gguf package knows neither name nor size of a type that is younger than it.
WRITABLE = sorted(t for t in SUPPORTED_TYPES if t in list(GGMLQuantizationType))
BLOCKS = [t for t in WRITABLE if t not in (QuantType.F32, QuantType.F16, QuantType.BF16)]
_LARGEST_SCALE = {QuantType.Q8_0: 0.002, QuantType.TQ1_0: 0.1, QuantType.TQ2_0: 0.1}


@cache
def _demo() -> GGUFReader:
    """Returns the open demo model, whose vocabulary takes long to read."""
    return GGUFReader(DEMO)


class Rewriter:
    """Writes the demo model with other weights to one file, and these in F32 to another."""

    def __init__(self, folder: Path) -> None:
        self.mixed, self.plain = folder / "mixed.gguf", folder / "plain.gguf"
        self.source = _demo()
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
