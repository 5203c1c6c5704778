"""AttentionArguments: the arguments of the kernels for attention of few tokens, by name."""

from typing import NamedTuple

import numpy as np

from sharpi.device.launch import Argument, Kernel, Launch
from sharpi.ops.cuda.launchers.attention.heads import NO_GROUP, GroupArguments
from sharpi.ops.cuda.launchers.named_arguments import argument_indices, flat


class AttentionArguments(NamedTuple):
    """The arguments in the order of kernels/cuda/attention/attention.cu, which explains them.

    The fields from `done` on are for launches that are folded into attention: the merge of spans,
    and the preparation of heads. By default nothing is folded in.
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
    quantised: Argument = None
    planes: Argument = np.int32(0)
    hadamard: Argument = np.int32(0)
    q: GroupArguments = NO_GROUP
    k: GroupArguments = NO_GROUP
    v: GroupArguments = NO_GROUP
    interleaved: Argument = np.int32(0)
    row_floats: Argument = np.int32(0)

    def launch(
        self, kernel: Kernel, grid: tuple[int, int, int], block: int, shared_bytes: int
    ) -> Launch:
        """Returns a launch with these arguments."""
        return Launch(
            kernel,
            grid,
            block,
            flat(self),
            writes=argument_indices(AttentionArguments, *self._written()),
            shared_bytes=shared_bytes,
        )

    def _written(self) -> list[str]:
        names = ["scratch"]
        if self.done is not None:
            names += ["done", "out", "quantised"]
        if self.q != NO_GROUP:
            names += ["keys", "values", "k.pages", "v.pages"]
        return names
