"""ExpertLaunches: the launches of a feed-forward, item by item or grouped by expert."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sharpi.device.launch import Launch, Span
from sharpi.ops.cpu.buffers import Buffer
from sharpi.ops.cuda.launchers.activations import activation_bytes
from sharpi.ops.cuda.launchers.experts import experts, experts_grouped, experts_packed, group_routes
from sharpi.ops.cuda.launchers.experts.experts import GpuStackedMatrix
from sharpi.ops.cuda.matvec_layout import takes_floats
from sharpi.ops.cuda.recorded import RecordedTensor, StepShape
from sharpi.ops.cuda.recorder.feed_forward import RecordedFeedForward, Scratch, hidden_planes
from sharpi.ops.cuda.recording import FLOAT_BYTES, Recording
from sharpi.ops.interface import StackedMatrix

TILED_ITEMS = 6  # mean tokens per expert; an estimate that no GPU has confirmed
# The stacked matrices of the first half (gate and up, or up alone), then of the second (down).
Parts = Sequence[GpuStackedMatrix]


class ExpertLaunches(Struct, frozen=True):
    """Makes the launches of one feed-forward, once its buffers are allocated."""

    recording: Recording
    x: RecordedTensor
    what: RecordedFeedForward
    out: RecordedTensor
    scratch: Scratch
    step: StepShape | None = None  # decides the memory of the routes
    first: int = 0  # the first token to compute

    def since(self, first: int) -> "ExpertLaunches":
        """Returns the launches for the tokens from `first` on."""
        return replace(self, first=first)

    def by_item(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        """Yields all launches; each item has blocks of its own."""
        what, down = self.what, self.what.expert_weights.down
        yield from self._item_hidden(parts, tokens)
        yield experts.down(
            self.at(self.scratch.hidden), self.ids, self.weights, parts[-1],
            self.sums,
            quant_type=down.quant_type, tokens=tokens, used=what.used, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes, residual=self.residual, scale=what.scale,
        )  # fmt: skip

    def item_values(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        """Yields the launches that compute the value of each item, without their sum."""
        down, items = self.what.expert_weights.down, tokens * self.what.used
        yield from self._item_hidden(parts, tokens)
        yield experts.product(
            self.at(self.scratch.hidden), self.ids, parts[-1], self.values,
            quant_type=down.quant_type, tokens=items, used=1, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes,
        )  # fmt: skip

    def group(self, tokens: int) -> Launch:
        """Returns the launch that lists the items of each expert."""
        assert self.ids is not None
        return group_routes.group_routes(
            self.ids, self.at(self.scratch.offsets), self.at(self.scratch.items),
            tokens=tokens, experts=self.what.expert_weights.down.num_experts, used=self.what.used,
        )  # fmt: skip

    def grouped(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        """Yields the launches that compute the values of all items, grouped by expert."""
        yield self.group(tokens)
        yield from self.grouped_values(parts, tokens, 0, self.what.expert_weights.down.num_experts)

    def grouped_values(self, parts: Parts, tokens: int, first: int, count: int) -> Iterator[Launch]:
        """Yields the launches for the items of `count` experts from `first` on.

        The items must be listed before.
        """
        down = self.what.expert_weights.down
        some = [part.some(first, count, down.num_experts) for part in parts]
        offsets = self.at(self.scratch.offsets).part(4 * first, 4 * (count + 1))
        lists = offsets, self.at(self.scratch.items)
        halves = experts_grouped.gate_up, experts_grouped.product
        in_tiles = self._are_tiled(tokens)
        sizes = {"experts": count, "used": self.what.used, "in_tiles": in_tiles}
        yield from self._hidden(some, tokens, *halves, lists, sizes)
        yield experts_grouped.down(
            self.at(self.scratch.hidden), *lists, some[-1], self.values,
            quant_type=down.quant_type, experts=count, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes, in_tiles=in_tiles,
        )  # fmt: skip

    def packed_values(
        self, parts: Parts, tokens: int, group: range, num_rows: int
    ) -> Iterator[Launch]:
        """Yields the launches that add the values of a group of experts to the sums.

        The items must be listed before. They are packed into `num_rows` rows.
        """
        what, down, packed = self.what, self.what.expert_weights.down, self.scratch.packed
        routed = self.recording.routed
        assert packed is not None
        assert routed is not None
        experts, items = len(group), tokens * what.used
        listed = self.at(self.scratch.offsets).part(4 * group.start, 4 * (experts + 1))
        offsets, rows, places = map(self.at, (packed.offsets, packed.items, packed.places))
        yield experts_packed.pack_routes(
            listed, self.at(self.scratch.items), offsets, rows, places, routed.is_over,
            experts=experts, num_items=items, capacity=num_rows,
        )  # fmt: skip
        some = [part.some(group.start, experts, down.num_experts) for part in parts]
        in_tiles = self._are_tiled(tokens)
        sizes = {"experts": experts, "used": what.used, "is_packed": True, "in_tiles": in_tiles}
        halves = experts_grouped.gate_up, experts_grouped.product
        yield from self._hidden(some, num_rows // what.used, *halves, (offsets, rows), sizes)
        yield experts_grouped.down(
            self.at(self.scratch.hidden), offsets, None, some[-1], self.values,
            quant_type=down.quant_type, experts=experts, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes, in_tiles=in_tiles,
        )  # fmt: skip
        yield self.merge_group(tokens, group, places)

    def _are_tiled(self, tokens: int) -> bool:
        """Returns True if the mean number of items per expert makes tensor cores faster."""
        least = TILED_ITEMS * self.what.expert_weights.down.num_experts
        is_off = "tensor-cores" in self.recording.disabled
        return tokens * self.what.used >= least and not is_off

    def merge(self, tokens: int) -> Launch:
        """Returns the launch that sums the values of the items."""
        return experts_grouped.merge(
            self.values, self.ids, self.weights, self.sums,
            tokens=tokens, used=self.what.used, rows=self.what.expert_weights.down.rows,
            residual=self.residual, scale=self.what.scale,
        )  # fmt: skip

    def merge_group(self, tokens: int, experts: range, places: Span | None = None) -> Launch:
        """Returns the launch that adds the values of some experts' items to the sums.

        `places` are the rows of the items' values; without it, item i has row i.
        """
        down = self.what.expert_weights.down
        assert self.ids is not None
        return experts_packed.merge_group(
            self.values, self.ids, places, self.weights, self.sums,
            tokens=tokens, used=self.what.used, rows=down.rows, experts=experts,
            num_experts=down.num_experts, residual=self.residual, scale=self.what.scale,
        )  # fmt: skip

    def activate(self, tokens: int, planes: int) -> Launch:
        """Returns the launch that applies the activation to gate and up, or to up alone."""
        pair = [self.at(buffer) for buffer in self.scratch.pair]
        return experts.activate(
            pair[0], pair[1] if len(pair) > 1 else None, self.at(self.scratch.hidden),
            activation=self.what.activation, items=tokens * self.what.used,
            rows=self.what.expert_weights.up.rows, hidden_planes=planes,
        )  # fmt: skip

    def first_half(self, parts: Parts) -> Iterator[tuple[StackedMatrix, GpuStackedMatrix, Span]]:
        """Yields gate and up, or up alone, each with the memory of its products."""
        for stacked, part, out in zip(
            self.what.first_half, parts[:-1], self.scratch.pair, strict=True
        ):
            yield stacked, part, self.at(out)

    def _item_hidden(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        lists, sizes = (self.ids,), {"tokens": tokens, "used": self.what.used}
        yield from self._hidden(parts, tokens, experts.gate_up, experts.product, lists, sizes)

    def _hidden(
        self,
        parts: Parts,
        tokens: int,
        gate_up: Callable[..., Launch],
        product: Callable[..., Launch],
        lists: tuple[Span | None, ...],
        sizes: dict[str, Any],
    ) -> Iterator[Launch]:
        """Yields the launches of the first half of the feed-forward.

        `lists` are the arguments by which `gate_up` and `product` find the expert of an item.
        """
        what, up = self.what, self.what.expert_weights.up
        weights = self.input_weights
        if what.is_fused:
            yield gate_up(
                self._source(up), *lists, *parts[:-1], self.at(self.scratch.hidden),
                quant_type=up.quant_type, activation=what.activation,
                hidden_planes=self._hidden_planes, input_weights=weights,
                **sizes, **self._sizes(up),
            )  # fmt: skip
            return
        for stacked, part, out in self.first_half(parts):
            yield product(
                self._source(stacked), *lists, part, out,
                quant_type=stacked.quant_type, input_weights=weights,
                **sizes, **self._sizes(stacked),
            )  # fmt: skip
        yield self.activate(tokens, self._hidden_planes)

    def _sizes(self, stacked: StackedMatrix) -> dict[str, Any]:
        planes = (
            0 if takes_floats(stacked.quant_type, self.recording.planes) else self.recording.planes
        )
        return {"columns": stacked.columns, "rows": stacked.rows, "planes": planes}

    def _source(self, stacked: StackedMatrix) -> Span:
        """Returns x as a stacked matrix takes it: floats, or rounded rows."""
        at = self.recording
        is_float = takes_floats(stacked.quant_type, at.planes)
        if is_float:
            return self.input
        return self._since(at.rounded_of(self.x), activation_bytes(self.x.width, at.planes))

    def _since(self, span: Span, row_bytes: int) -> Span:
        """Returns the rows of a span from the first token on."""
        before = self.first * row_bytes
        return span.part(before, span.num_bytes - before)

    @property
    def input(self) -> Span:
        """The floats of x."""
        return self._since(self.recording.of(self.x), self.x.width * FLOAT_BYTES)

    @property
    def sums(self) -> Span:
        """The result, (T, rows)."""
        return self._since(self.recording.of(self.out), self.out.width * FLOAT_BYTES)

    @property
    def _hidden_planes(self) -> int:
        return hidden_planes(self.recording, self.what)

    @property
    def ids(self) -> Span | None:
        """The routes, (T, used)."""
        ids = self.what.ids
        if ids is None:
            return None
        if ids.routes is None or self.step is None:
            return self._since(self.recording.of(ids), ids.width * FLOAT_BYTES)
        span = ids.routes.span(self.step)
        return self._since(span, ids.width * FLOAT_BYTES)

    @property
    def values(self) -> Span:
        """The values of the items, (T * used, rows)."""
        return self.at(self.scratch.parts)

    @property
    def input_weights(self) -> Span | None:
        """The weights of inputs, (T, used), None without them."""
        return self._route_weights if self.what.expert_weights.weighs_input else None

    @property
    def weights(self) -> Span | None:
        """The weights of the items' values, (T, used), None without them."""
        return None if self.what.expert_weights.weighs_input else self._route_weights

    @property
    def _route_weights(self) -> Span | None:
        weights = self.what.weights
        if weights is None:
            return None
        return self._since(self.recording.of(weights), weights.width * FLOAT_BYTES)

    @property
    def residual(self) -> Span | None:
        """The residual that the sum is added to, None without one."""
        residual = self.what.residual
        if residual is None:
            return None
        return self._since(self.recording.of(residual), residual.width * FLOAT_BYTES)

    def at(self, buffer: Buffer) -> Span:
        """Returns the memory of a buffer."""
        span = self.recording.at(buffer)
        assert span is not None
        return span
