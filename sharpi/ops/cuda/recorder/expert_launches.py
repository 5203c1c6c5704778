"""ExpertLaunches: the launches of a feed-forward, item by item or grouped by expert.

An item is a token with one of its experts.
"""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.launchers.experts import experts, experts_grouped, route
from sharpi.ops.cuda.launchers.experts.experts_grouped import fills_tiles
from sharpi.ops.cuda.launchers.f16_rows import F16Rows
from sharpi.ops.cuda.recorded import Call, StepShape
from sharpi.ops.cuda.recorder.expert_operands import ExpertF16Operands, Parts
from sharpi.ops.interface import StackedMatrix


class ExpertLaunches(ExpertF16Operands, frozen=True):
    """Makes the launches of one feed-forward, once its buffers are allocated."""

    def from_token(self, first: int) -> "ExpertLaunches":
        """Returns the launches for the tokens from `first` on."""
        return replace(self, first=first)

    def by_item(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        """Yields all launches of the feed-forward; each item has separate thread blocks."""
        ffn, down = self.ffn, self.ffn.expert_weights.down
        yield from self._item_hidden(parts, tokens)
        yield experts.down(
            self.at(self.scratch.hidden), self.ids, self.weights, parts[-1],
            self.sums,
            quant_type=down.quant_type, tokens=tokens, used=ffn.used, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes, residual=self.residual, scale=ffn.scale,
        )  # fmt: skip

    def item_values(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        """Yields the launches that compute the value of each item, without their sum."""
        down, items = self.ffn.expert_weights.down, tokens * self.ffn.used
        yield from self._item_hidden(parts, tokens)
        yield experts.product(
            self.at(self.scratch.hidden), self.ids, parts[-1], self.values,
            quant_type=down.quant_type, tokens=items, used=1, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes,
        )  # fmt: skip

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
        down = self.ffn.expert_weights.down
        some = [part.some(first, count, down.num_experts) for part in parts]
        offsets = self.at(self.scratch.offsets).part(4 * first, 4 * (count + 1))
        lists = offsets, self.at(self.scratch.items)
        launchers = experts_grouped.gate_up, experts_grouped.product
        in_tiles = self._are_tiled(tokens)
        sizes = {"experts": count, "used": self.ffn.used, "in_tiles": in_tiles}
        yield from self._hidden(some, tokens, self.grouped_source, *launchers, lists, sizes)
        yield from self.hidden_to_f16(*lists, count, tokens * self.ffn.used)
        yield experts_grouped.down(
            self.grouped_hidden, *lists, some[-1], self.values,
            quant_type=down.quant_type, experts=count, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes, in_tiles=in_tiles,
        )  # fmt: skip

    def packed_values(
        self, parts: Parts, tokens: int, group: range, num_rows: int
    ) -> Iterator[Launch]:
        """Yields the launches that compute a group of experts and add the results to the sums.

        The items are packed into `num_rows` rows. The launches of `group` and `x_to_f16` must
        precede these.
        """
        ffn, down, packed = self.ffn, self.ffn.expert_weights.down, self.scratch.packed
        routed = self.recording.routed
        assert packed is not None
        assert routed is not None
        experts, items = len(group), tokens * ffn.used
        listed = self.at(self.scratch.offsets).part(4 * group.start, 4 * (experts + 1))
        offsets, rows, item_rows = map(self.at, (packed.offsets, packed.items, packed.item_rows))
        yield route.pack_routes(
            listed, self.at(self.scratch.items), offsets, rows, item_rows, routed.is_over,
            experts=experts, num_items=items, capacity=num_rows,
        )  # fmt: skip
        some = [part.some(group.start, experts, down.num_experts) for part in parts]
        in_tiles = self._are_tiled(tokens)
        sizes = {"experts": experts, "used": ffn.used, "is_packed": True, "in_tiles": in_tiles}
        launchers = experts_grouped.gate_up, experts_grouped.product
        source, most = self.grouped_source, num_rows // ffn.used
        yield from self._hidden(some, most, source, *launchers, (offsets, rows), sizes)
        yield from self.hidden_to_f16(offsets, None, experts, num_rows)
        yield experts_grouped.down(
            self.grouped_hidden, offsets, None, some[-1], self.values,
            quant_type=down.quant_type, experts=experts, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes, in_tiles=in_tiles,
        )  # fmt: skip
        yield self.merge_group(tokens, group, item_rows)

    def _are_tiled(self, tokens: int) -> bool:
        """Returns True if the mean number of items per expert makes tensor cores faster."""
        experts = self.ffn.expert_weights.down.num_experts
        is_on = self.recording.features.has("tensor-cores")
        return fills_tiles(tokens, self.ffn.used, experts) and is_on

    def merge(self, tokens: int) -> Launch:
        """Returns the launch that sums the values of the items."""
        return experts_grouped.merge(
            self.values, self.ids, self.weights, self.sums,
            tokens=tokens, used=self.ffn.used, rows=self.ffn.expert_weights.down.rows,
            residual=self.residual, scale=self.ffn.scale,
        )  # fmt: skip

    def merge_group(self, tokens: int, experts: range, item_rows: Span | None = None) -> Launch:
        """Returns the launch that adds the values of some experts' items to the sums.

        `item_rows` are the rows of the items' values; without it, item i has row i.
        """
        down = self.ffn.expert_weights.down
        assert self.ids is not None
        return route.merge_group(
            self.values, self.ids, item_rows, self.weights, self.sums,
            tokens=tokens, used=self.ffn.used, rows=down.rows, experts=experts,
            num_experts=down.num_experts, residual=self.residual, scale=self.ffn.scale,
        )  # fmt: skip

    def activate(self, tokens: int, planes: int) -> Launch:
        """Returns the launch that applies the activation to gate and up, or to up alone."""
        pair = [self.at(buffer) for buffer in self.scratch.pair]
        return experts.activate(
            pair[0], pair[1] if len(pair) > 1 else None, self.at(self.scratch.hidden),
            activation=self.ffn.activation, items=tokens * self.ffn.used,
            rows=self.ffn.expert_weights.up.rows, hidden_planes=planes,
        )  # fmt: skip

    def _item_hidden(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        lists, sizes = (self.ids,), {"tokens": tokens, "used": self.ffn.used}
        launchers = experts.gate_up, experts.product
        yield from self._hidden(parts, tokens, self._source, *launchers, lists, sizes)

    def _hidden(
        self,
        parts: Parts,
        tokens: int,
        source: Callable[[StackedMatrix], Span | F16Rows],
        gate_up: Callable[..., Launch],
        product: Callable[..., Launch],
        lists: tuple[Span | None, ...],
        sizes: dict[str, Any],
    ) -> Iterator[Launch]:
        """Yields the launches that compute the input of the down matrix.

        `source` returns x as a matrix takes it. `lists` are the arguments by which `gate_up` and
        `product` find the expert of an item.
        """
        ffn, up = self.ffn, self.ffn.expert_weights.up
        weights = self.input_weights
        if ffn.is_fused:
            yield gate_up(
                source(up), *lists, *parts[:-1], self.at(self.scratch.hidden),
                quant_type=up.quant_type, activation=ffn.activation,
                hidden_planes=self._hidden_planes, input_weights=weights,
                **sizes, **self._sizes(up),
            )  # fmt: skip
            return
        for stacked, part, out in self.gate_and_up(parts):
            yield product(
                source(stacked), *lists, part, out,
                quant_type=stacked.quant_type, input_weights=weights,
                **sizes, **self._sizes(stacked),
            )  # fmt: skip
        yield self.activate(tokens, self._hidden_planes)


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
