"""Folds adjacent launches of a decoded token into one, where one kernel can do the work of both."""

from collections.abc import Iterable, Iterator

from sharpi.device.launch import Launch, Span, overlap
from sharpi.ops.cuda.launchers import matvec, slot_route, split_join
from sharpi.ops.cuda.launchers.attention import attention, join_heads
from sharpi.ops.cuda.launchers.experts import experts, experts_gathered
from sharpi.ops.cuda.recorded import Call

COUNTERS = 4096  # int32 zeros that tell the last block of a launch that it is the last


def folded(calls: Iterable[Call], counters: Span) -> Iterator[Call]:
    """Yields the calls; one launch replaces two if a kernel can do the work of both.

    The next launch may be folded into that one in turn. The results have the same bits. `counters`
    are int32 that are 0 between launches.
    """
    before: Call | None = None
    for call in calls:
        both = _both(before, call, counters)
        if both is None and before is not None:
            yield before
        before = call if both is None else both
    if before is not None:
        yield before


def _both(first: Call | None, second: Call, counters: Span) -> Launch | None:
    if not (isinstance(first, Launch) and isinstance(second, Launch)):
        return None
    match first.kernel.file, second.kernel.file:
        case "heads", "attention" | "split_attention":
            return attention.with_heads(first, second)
        case "attention" | "split_attention", "attention_merge":
            return attention.with_merge(first, second, counters)
        case "matvec", "rms_norm":
            return matvec.with_norm(first, second, counters)
        case "matvec", "route":
            return matvec.with_route(first, second, counters)
        case "matvec", "slot_policy":
            return slot_route.with_slots(first, second)
        case "gather_experts", "experts_gate_up":
            return experts_gathered.with_gather(first, second)
        case "experts_down", "rms_norm":
            return experts.down_with_norm(first, second, counters)
        case _ if _writes_over(first, second):
            return None
        case "heads", "join":
            return join_heads.with_join(first, second)
        case "split", "quantise":
            return split_join.with_quantise(first, second)
        case "experts_product", "quantise":
            return experts.product_with_quantise(first, second)
    return None


def _writes_over(first: Launch, second: Launch) -> bool:
    """Returns True if a launch writes to memory that the launch before it reads.

    Buffers are used again as soon as nothing reads them. The blocks of one launch may be at any
    place at a time, unless one waits for the others.
    """
    read = [each for each in first.arguments if isinstance(each, Span)]
    written = [each for i in second.writes if isinstance(each := second.arguments[i], Span)]
    return any(overlap(one, other) for one in read for other in written)
