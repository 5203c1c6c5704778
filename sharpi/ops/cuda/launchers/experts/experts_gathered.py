"""Launches the kernel that copies a token's missed experts and computes gate and up of all experts.

Blocks of resident experts compute while missed experts are copied.
"""

from sharpi.device.launch import Kernel, Launch
from sharpi.ops.cuda.launchers.experts.experts import GateUpArguments
from sharpi.ops.cuda.launchers.named_arguments import named
from sharpi.ops.cuda.launchers.waits import CopyWait

_COPYING = 32  # blocks that copy, or one row of the grid; an estimate that no GPU has confirmed
_MOST_COPYING = 4095  # GatherWait counts them in 12 bits


def with_gather(gather: Launch, gate_up: Launch) -> Launch | None:
    """Returns one launch that replaces `gather`, the copies to slots, and `gate_up` of one token.

    Returns None if `gate_up` has several tokens, or if `gather` is a prefetch, which records no
    start time.
    """
    given = named(GateUpArguments, gate_up.arguments)
    since = gather.arguments[CopyWait._fields.index("since") - len(CopyWait._fields)]
    tiles, items, _ = gate_up.grid
    rows = max(1, _COPYING // tiles)
    is_of_token = given.ids is not None and items == given.used
    if not is_of_token or since is None or rows * tiles > _MOST_COPYING:
        return None
    before = len(gather.arguments)
    return Launch(
        _kernel(gate_up.kernel),
        grid=(tiles, rows + items, 1),
        block=gate_up.block,
        arguments=(*gather.arguments, *gate_up.arguments),
        writes=gather.writes | {before + place for place in gate_up.writes},
        referenced=gather.referenced + gate_up.referenced,
    )


def _kernel(gate_up: Kernel) -> Kernel:
    name = "experts_gather_gate_up"
    return Kernel(name, gate_up.entry.replace(gate_up.file, name), gate_up.quant_type)
