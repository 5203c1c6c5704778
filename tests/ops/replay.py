"""Runs a function of `Ops` with the reference and with native operations, for comparison."""

from collections.abc import Callable, Sequence
from ctypes import c_void_p
from typing import Any

import numpy as np
from reference_ops import ReferenceOps

from sharpi.gguf.quant_types import QuantType
from sharpi.hardware.topology import ThreadPlace
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, KvCache
from sharpi.ops.cpu.library import INSTRUCTION_SETS, ThreadPool, load_library
from sharpi.ops.cpu.program import ProgramLimits, Rounding, int_pointer
from sharpi.ops.cpu.recorder import Recorder
from sharpi.ops.interface import Matrix, StackedMatrix
from sharpi.ops.recurrent import RecurrentShape, StateLayout
from sharpi.settings import F16_TYPES, KvTypes

Model = Callable[[Any], Any]
# The instruction sets that this machine supports.
AVAILABLE = [
    name for name in INSTRUCTION_SETS if load_library().sharpi_instruction_set(name.encode())
]


def matrix(rng: np.random.Generator, rows: int, columns: int, bias: bool = False) -> Matrix:
    """A random float32 matrix of unit gain."""
    values = rng.standard_normal((rows, columns)).astype(np.float32) / np.float32(columns**0.5)
    offset = rng.standard_normal(rows).astype(np.float32) if bias else None
    data = values.view(np.uint8).reshape(-1)
    return Matrix("w", QuantType.F32, rows, columns, data, offset)


def stacked(rng: np.random.Generator, experts: int, rows: int, columns: int) -> StackedMatrix:
    """Random float32 matrices of unit gain."""
    values = rng.standard_normal((experts, rows, columns)).astype(np.float32) / np.float32(
        columns**0.5
    )
    return StackedMatrix(
        "b", QuantType.F32, experts, rows, columns, values.view(np.uint8).reshape(-1)
    )


def reference(
    model: Model, steps: Sequence[Sequence[int]], ops: ReferenceOps | None = None
) -> np.ndarray:
    """Returns all tokens' outputs (tokens, width), computed step by step."""
    ops, outs, position = ops or ReferenceOps(), [], 0
    for ids in steps:
        ops.begin(ids, position, range(len(ids)))
        outs.append(model(ops))
        position += len(ids)
    return np.concatenate(outs)


class Native:
    """A recorded model; `run` replays it over steps of one sequence."""

    def __init__(
        self,
        model: Model,
        shapes: Sequence[AttentionShape] = (),
        *,
        threads: int = 2,
        instruction_set: str | None = None,
        precision: Rounding = "int8",
        kv_types: KvTypes = F16_TYPES,
        max_tokens: int = 640,
        max_positions: int = 2048,
        states: Sequence[RecurrentShape] = (),
        limits: ProgramLimits | None = None,
        places: Sequence[ThreadPlace] = (),
    ) -> None:
        pages = max_positions // PAGE_POSITIONS
        self.limits = limits or ProgramLimits(
            max_tokens, max_tokens, max_positions, precision, instruction_set
        )
        layout = StateLayout(states)
        self.cache = KvCache(shapes, pages, kv_types)
        recorder = Recorder(self.limits, self.cache, states=layout)
        self.program = recorder.finish(model(recorder))
        self.pool = ThreadPool(len(places) or threads, places)
        self.state = np.full(layout.num_floats, 7, np.float32)  # left by an earlier sequence
        self.states = (c_void_p * 1)(self.state.ctypes.data)
        self.num_dropped = 0
        # Not in order, so that a page's id is never taken for its position.
        self.pages = np.random.default_rng(9).permutation(pages).astype(np.int32)

    def run(
        self,
        steps: Sequence[Sequence[int]],
        threads: int = 2,
        position: int = 0,
        outputs: bool = True,
        num_kept: int = 0,
    ) -> np.ndarray:
        """Returns all tokens' outputs; with `outputs=False`, none are requested and it is empty.

        After the last step with `num_kept`, each head keeps so many keys and values. They lie in
        the last pages of the table, and later steps read those pages first.
        """
        outs = []
        for step_ids in steps:
            ids = np.asarray(step_ids, np.int32)
            positions = np.arange(position, position + len(ids), dtype=np.int32)
            zeros, rows = np.zeros(len(ids), np.int32), np.arange(len(ids), dtype=np.int32)
            count = len(ids) if outputs else 0
            step = abi.Step(
                num_tokens=len(ids), num_outputs=count, ids=int_pointer(ids),
                positions=int_pointer(positions), sequences=int_pointer(zeros),
                output_rows=int_pointer(rows), page_table=int_pointer(self.pages),
                pages_per_sequence=len(self.pages), states=self.states,
            )  # fmt: skip
            slots, kept = positions - self.num_dropped, np.full(1, num_kept, np.int32)
            step.slots, step.num_kept = int_pointer(slots), int_pointer(kept)
            step.kept_table = int_pointer(backwards := self.pages[::-1].copy())
            self.program.run(step, self.pool, threads)
            outs.append(self.program.logits[:count].copy())
            position += len(ids)
            if num_kept:
                self.num_dropped, self.pages = position - num_kept, backwards
        return np.concatenate(outs)
