"""ExpertLaunches: the launches of a feed-forward, item by item or grouped by expert.

An item is a token with one of its experts.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.launchers.experts import experts, experts_grouped, route
from sharpi.ops.cuda.launchers.experts.experts import Items, RoutedSum
from sharpi.ops.cuda.launchers.experts.experts_grouped import Groups, fills_tiles
from sharpi.ops.cuda.recorded import Call, StepShape
from sharpi.ops.cuda.recorder.expert_operands import ExpertF16Operands, Parts


class ExpertLaunches(ExpertF16Operands, frozen=True):
    """Makes the launches of one feed-forward, once its buffers are allocated."""

    def from_token(self, first: int) -> "ExpertLaunches":
        """Returns the launches for the tokens from `first` on."""
        return replace(self, first=first)

    def _items(self, tokens: int) -> Items:
        return Items(self.ids, tokens, self.ffn.used)

    def total(self, tokens: int) -> RoutedSum:
        """Returns the sum of the tokens' items, which is the result of the feed-forward."""
        rows, scale = self.ffn.expert_weights.down.rows, self.ffn.scale
        return RoutedSum(self._items(tokens), rows, self.sums, self.weights, self.residual, scale)

    def by_item(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        """Yields all launches of the feed-forward; each item has separate thread blocks."""
        yield from self._hidden(parts, self._items(tokens), tokens * self.ffn.used)
        hidden, planes = self.at(self.scratch.hidden), self.recording.planes
        yield experts.down(hidden, parts[-1], self.total(tokens), planes=planes)

    def item_values(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        """Yields the launches that compute the value of each item, without their sum."""
        count = tokens * self.ffn.used
        yield from self._hidden(parts, self._items(tokens), count)
        hidden, items = self.at(self.scratch.hidden), Items(self.ids, count)
        planes = self.recording.planes
        yield experts.product(hidden, items, parts[-1], self.values, planes=planes)

    def group(self, tokens: int) -> Launch:
        """Returns the launch that lists the items of each expert."""
        assert self.ids is not None
        return route.group_routes(
            self.ids, self.at(self.scratch.offsets), self.at(self.scratch.items),
            tokens=tokens, experts=self.ffn.expert_weights.down.num_experts, used=self.ffn.used,
        )  # fmt: skip

    def grouped(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        """Yields the launches that compute the values of all items, grouped by expert."""
        yield self.group(tokens)
        yield from self.x_to_f16(tokens)
        yield from self.grouped_values(parts, tokens, 0, self.ffn.expert_weights.down.num_experts)

    def grouped_values(self, parts: Parts, tokens: int, first: int, count: int) -> Iterator[Launch]:
        """Yields the launches that compute the items of `count` experts from id `first` on.

        The launches of `group` and `x_to_f16` must precede them.
        """
        listed, used = self.at(self.scratch.items), self.ffn.used
        in_tiles = self._are_tiled(tokens)
        groups = Groups(self._offsets(first, count), listed, count, used, in_tiles=in_tiles)
        yield from self._of_groups(parts, groups, first, tokens * used)

    def packed_values(
        self, parts: Parts, tokens: int, group: range, num_rows: int
    ) -> Iterator[Launch]:
        """Yields the launches that compute a group of experts and add the results to the sums.

        The items are packed into `num_rows` rows. The launches of `group` and `x_to_f16` must
        precede these.
        """
        packed, routed, used = self.scratch.packed, self.recording.routed, self.ffn.used
        assert packed is not None
        assert routed is not None
        listed = self._offsets(group.start, len(group)), self.at(self.scratch.items)
        offsets, rows, item_rows = map(self.at, (packed.offsets, packed.items, packed.item_rows))
        yield route.pack_routes(
            *listed, offsets, rows, item_rows, routed.is_over,
            experts=len(group), num_items=tokens * used, capacity=num_rows,
        )  # fmt: skip
        groups = Groups(offsets, rows, len(group), used, True, self._are_tiled(tokens))
        yield from self._of_groups(parts, groups, group.start, num_rows)
        yield self.merge_group(tokens, group, item_rows)

    def _offsets(self, first: int, count: int) -> Span:
        return self.at(self.scratch.offsets).part(4 * first, 4 * (count + 1))

    def _of_groups(
        self, parts: Parts, groups: Groups, first: int, num_rows: int
    ) -> Iterator[Launch]:
        """Yields the launches that compute the values of groups, which begin at expert `first`."""
        num_experts = self.ffn.expert_weights.down.num_experts
        some = [part.some(first, groups.experts, num_experts) for part in parts]
        yield from self._hidden(some, groups, num_rows)
        listed = None if groups.is_packed else groups.items
        yield from self.hidden_to_f16(groups.offsets, listed, groups.experts, num_rows)
        planes = self.recording.planes
        yield experts_grouped.down(
            self.grouped_hidden, groups, some[-1], self.values, planes=planes
        )

    def _are_tiled(self, tokens: int) -> bool:
        """Returns True if the mean number of items per expert makes tensor cores faster."""
        experts = self.ffn.expert_weights.down.num_experts
        is_on = self.recording.features.has("tensor-cores")
        return fills_tiles(tokens, self.ffn.used, experts) and is_on

    def merge(self, tokens: int) -> Launch:
        """Returns the launch that sums the values of the items."""
        return experts_grouped.merge(self.values, self.total(tokens))

    def merge_group(self, tokens: int, experts: range, item_rows: Span | None = None) -> Launch:
        """Returns the launch that adds the values of some experts' items to the sums.

        `item_rows` are the rows of the items' values; without it, item i has row i.
        """
        num_experts = self.ffn.expert_weights.down.num_experts
        total = self.total(tokens)
        return route.merge_group(
            self.values, item_rows, total, experts=experts, num_experts=num_experts
        )

    def activate(self, items: int, planes: int) -> Launch:
        """Returns the launch that applies the activation to gate and up, or to up alone."""
        pair = [self.at(buffer) for buffer in self.scratch.pair]
        return experts.activate(
            pair[0], pair[1] if len(pair) > 1 else None, self.at(self.scratch.hidden),
            activation=self.ffn.activation, items=items,
            rows=self.ffn.expert_weights.up.rows, hidden_planes=planes,
        )  # fmt: skip

    def _hidden(self, parts: Parts, listed: Items | Groups, num_rows: int) -> Iterator[Launch]:
        """Yields the launches that compute the input of the down matrix, in `num_rows` rows."""
        ffn, planes, is_grouped = self.ffn, self.recording.planes, isinstance(listed, Groups)
        launchers: Any = experts_grouped if is_grouped else experts
        source = self.grouped_source if is_grouped else self._source
        weights = {"planes": planes, "input_weights": self.input_weights}
        if ffn.is_fused:
            yield launchers.gate_up(
                source(ffn.expert_weights.up), listed, *parts[:-1], self.at(self.scratch.hidden),
                activation=ffn.activation, hidden_planes=self._hidden_planes, **weights,
            )  # fmt: skip
            return
        for stacked, part, out in self.gate_and_up(parts):
            yield launchers.product(source(stacked), listed, part, out, **weights)
        yield self.activate(num_rows, self._hidden_planes)


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
