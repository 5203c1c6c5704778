"""PackedExperts: computes a batch's routed experts in groups, within a limited number of rows."""

from collections.abc import Iterator

from msgspec import Struct

from sharpi.device.launch import Launch
from sharpi.ops.cuda.recorded import Call, StepShape
from sharpi.ops.cuda.recorder.expert_launches import ExpertLaunches
from sharpi.ops.cuda.recorder.expert_operands import Parts


class PackedExperts(Struct, frozen=True):
    """Computes experts in groups, by ascending id; each group adds to the tokens' sums."""

    launches: ExpertLaunches
    num_rows: int  # rows of the scratch memory
    at_once: int  # experts of a group

    def values(
        self, parts: Parts, tokens: int, experts: range, *, is_exact: bool
    ) -> Iterator[Launch]:
        """Yields the launches that compute a range of experts and add the results to the sums.

        The launches of `x_to_f16` must precede them. With `is_exact`, so few tokens are computed at
        a time that all their items fit into the rows. Without it, items beyond the number of rows
        are dropped.
        """
        stride = self.num_rows // self.launches.ffn.used if is_exact else tokens
        firsts = range(0, tokens, stride)
        if len(firsts) == 1:
            yield self.launches.group(tokens)
        for begin in range(experts.start, experts.stop, self.at_once):
            group = range(begin, min(begin + self.at_once, experts.stop))
            for first in firsts:
                some, count = self.launches.from_token(first), min(stride, tokens - first)
                if len(firsts) > 1:
                    yield some.group(count)
                yield from some.packed_values(parts, count, group, self.num_rows)


def packed_experts(launches: ExpertLaunches) -> PackedExperts | None:
    """Returns the `PackedExperts` of a feed-forward; None if its rows are not limited."""
    packed, routed = launches.scratch.packed, launches.recording.routed
    if packed is None or routed is None:
        return None
    at_once = routed.experts_at_once(launches.ffn.expert_weights.down.num_experts)
    return PackedExperts(launches, packed.num_rows, at_once)


def grouped_sum(launches: ExpertLaunches, parts: Parts, step: StepShape) -> Iterator[Call]:
    """Yields the launches that compute and sum the values of all experts, grouped by expert."""
    tokens, packed = step.rows(launches.x.rows), packed_experts(launches)
    if packed is None:
        yield from launches.grouped(parts, tokens)
        yield launches.merge(tokens)
    else:
        experts = range(launches.ffn.expert_weights.down.num_experts)
        yield from launches.x_to_f16(tokens)
        yield from packed.values(parts, tokens, experts, is_exact=step.is_exact)
