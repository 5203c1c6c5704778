"""AttentionArguments: the arguments of the kernels for attention of few tokens, by name."""

from typing import NamedTuple

import numpy as np

from sharpi.device.launch import Argument, Kernel, Launch
from sharpi.ops.cuda.launchers.attention.heads import ARGUMENTS_OF_GROUP, NO_GROUP, GroupArguments


class AttentionArguments(NamedTuple):
    """The arguments in the order of kernels/cuda/attention/attention.cu, which explains them.

    `done` and what follows are for what other launches would do: merge the spans, and prepare the
    heads. The default is neither.
    """

    queries: Argument
    keys: Argument
    values: Argument
    page_tables: Argument
    sequences: Argument
    positions: Argument
    scratch: Argument
    table_stride: Argument
    num_heads: Argument
    heads_each: Argument
    key_dim: Argument
    value_dim: Argument
    scale: Argument
    window: Argument
    is_chunked: Argument
    soft_cap: Argument
    done: Argument = None
    sinks: Argument = None
    out: Argument = None
    rounded: Argument = None
    planes: Argument = np.int32(0)
    hadamard: Argument = np.int32(0)
    q: GroupArguments = NO_GROUP
    k: GroupArguments = NO_GROUP
    v: GroupArguments = NO_GROUP
    interleaved: Argument = np.int32(0)
    row_floats: Argument = np.int32(0)

    @classmethod
    def of(cls, launch: Launch) -> "AttentionArguments":
        """Returns the arguments of a launch that `launch` has made."""
        given, first = launch.arguments, cls._fields.index("q")
        starts = [first + i * ARGUMENTS_OF_GROUP for i in range(4)]
        groups = [GroupArguments(*given[i : i + ARGUMENTS_OF_GROUP]) for i in starts[:3]]
        return cls(*given[:first], *groups, *given[starts[3] :])  # type: ignore[arg-type]

    def launch(
        self, kernel: Kernel, grid: tuple[int, int, int], block: int, shared_bytes: int
    ) -> Launch:
        """Returns a launch with these arguments."""
        names = [*self._written()]
        return Launch(
            kernel,
            grid,
            block,
            self._flat(),
            writes=frozenset(map(self._fields.index, names)) | self._written_pages(),
            shared_bytes=shared_bytes,
        )

    def _flat(self) -> tuple[Argument, ...]:
        parts = (each if isinstance(each, GroupArguments) else (each,) for each in self)
        return tuple(argument for part in parts for argument in part)

    def _written(self) -> list[str]:
        names = ["scratch"]
        if self.done is not None:
            names += ["done", "out", "rounded"]
        if self.q != NO_GROUP:
            names += ["keys", "values"]
        return names

    def _written_pages(self) -> frozenset[int]:
        if self.q == NO_GROUP:
            return frozenset()
        pages = self._fields.index("q") + NO_GROUP._fields.index("pages")
        return frozenset(pages + i * ARGUMENTS_OF_GROUP for i in (1, 2))
