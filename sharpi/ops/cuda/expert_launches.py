"""The launches of a feed-forward's halves: item by item, or grouped by the experts that compute."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sharpi.device.launch import Launch, Span
from sharpi.ops.buffers import Buffer
from sharpi.ops.cuda import experts, experts_grouped, experts_packed, group_routes
from sharpi.ops.cuda.experts import BankPart
from sharpi.ops.cuda.feed_forward import FeedForward, Scratch, hidden_planes
from sharpi.ops.cuda.lanes import takes_floats
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.cuda.values import Extent, Value
from sharpi.ops.interface import Bank

Parts = Sequence[BankPart]  # of the banks of the first half, then that of the second


@dataclass(frozen=True, slots=True)
class ExpertLaunches:
    """One feed-forward of a recording, whose buffers have places by the time of the calls.

    `extent`: of the step, as far as it says where the routes are.
    """

    recording: Recording
    x: Value
    what: FeedForward
    out: Value
    scratch: Scratch
    extent: Extent | None = None

    def by_item(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        """Everything, each item by its own blocks."""
        what, down = self.what, self.what.banks.down
        yield from self._item_hidden(parts, tokens)
        yield experts.down(
            self.at(self.scratch.hidden), self.ids, self.weights, parts[-1],
            self.recording.of(self.out),
            quant_type=down.quant_type, tokens=tokens, used=what.used, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes, residual=self.residual, scale=what.scale,
        )  # fmt: skip

    def item_values(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        """The same up to the values of the items, which are not summed."""
        down, items = self.what.banks.down, tokens * self.what.used
        yield from self._item_hidden(parts, tokens)
        yield experts.product(
            self.at(self.scratch.hidden), self.ids, parts[-1], self.values,
            quant_type=down.quant_type, tokens=items, used=1, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes,
        )  # fmt: skip

    def group(self, tokens: int) -> Launch:
        """Lists the items of each expert."""
        assert self.ids is not None
        return group_routes.group_routes(
            self.ids, self.at(self.scratch.offsets), self.at(self.scratch.items),
            tokens=tokens, experts=self.what.banks.down.num_experts, used=self.what.used,
        )  # fmt: skip

    def grouped(self, parts: Parts, tokens: int) -> Iterator[Launch]:
        """The values of all items, expert by expert."""
        yield self.group(tokens)
        yield from self.grouped_values(parts, tokens, 0, self.what.banks.down.num_experts)

    def grouped_values(self, parts: Parts, tokens: int, first: int, count: int) -> Iterator[Launch]:
        """The values of the items of `count` experts from the first on, once they are listed."""
        down = self.what.banks.down
        some = [part.some(first, count, down.num_experts) for part in parts]
        offsets = self.at(self.scratch.offsets).part(4 * first, 4 * (count + 1))
        lists = offsets, self.at(self.scratch.items)
        halves = experts_grouped.gate_up, experts_grouped.product
        sizes = {"experts": count, "used": self.what.used}
        yield from self._hidden(some, tokens, *halves, lists, sizes)
        yield experts_grouped.down(
            self.at(self.scratch.hidden), *lists, some[-1], self.values,
            quant_type=down.quant_type, experts=count, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes,
        )  # fmt: skip

    def merge(self, tokens: int) -> Launch:
        """Sums the values of the items."""
        return experts_grouped.merge(
            self.values, self.ids, self.weights, self.recording.of(self.out),
            tokens=tokens, used=self.what.used, rows=self.what.banks.down.rows,
            residual=self.residual, scale=self.what.scale,
        )  # fmt: skip

    def merge_group(self, tokens: int, experts: range) -> Launch:
        """Adds the values of some experts' items to the sums."""
        down = self.what.banks.down
        assert self.ids is not None
        return experts_packed.merge_group(
            self.values, self.ids, None, self.weights, self.recording.of(self.out),
            tokens=tokens, used=self.what.used, rows=down.rows, experts=experts,
            num_experts=down.num_experts, residual=self.residual, scale=self.what.scale,
        )  # fmt: skip

    def activate(self, tokens: int, planes: int) -> Launch:
        """What becomes of gate and up, or of up alone."""
        pair = [self.at(buffer) for buffer in self.scratch.pair]
        return experts.activate(
            pair[0], pair[1] if len(pair) > 1 else None, self.at(self.scratch.hidden),
            activation=self.what.activation, items=tokens * self.what.used,
            rows=self.what.banks.up.rows, hidden_planes=planes,
        )  # fmt: skip

    def first_half(self, parts: Parts) -> Iterator[tuple[Bank, BankPart, Span]]:
        """Gate and up, or up alone, each with where its products go."""
        for bank, part, out in zip(
            self.what.first_half, parts[:-1], self.scratch.pair, strict=True
        ):
            yield bank, part, self.at(out)

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
        sizes: dict[str, int],
    ) -> Iterator[Launch]:
        """The first half, by launchers that find an item's expert in these lists."""
        what, up = self.what, self.what.banks.up
        weights = self.input_weights
        if what.is_fused:
            yield gate_up(
                self._source(up), *lists, *parts[:-1], self.at(self.scratch.hidden),
                quant_type=up.quant_type, activation=what.activation,
                hidden_planes=self._hidden_planes, input_weights=weights,
                **sizes, **self._sizes(up),
            )  # fmt: skip
            return
        for bank, part, out in self.first_half(parts):
            yield product(
                self._source(bank), *lists, part, out,
                quant_type=bank.quant_type, input_weights=weights, **sizes, **self._sizes(bank),
            )  # fmt: skip
        yield self.activate(tokens, self._hidden_planes)

    def _sizes(self, bank: Bank) -> dict[str, Any]:
        planes = (
            0 if takes_floats(bank.quant_type, self.recording.planes) else self.recording.planes
        )
        return {"columns": bank.columns, "rows": bank.rows, "planes": planes}

    def _source(self, bank: Bank) -> Span:
        """x in the form that a bank takes."""
        at = self.recording
        is_float = takes_floats(bank.quant_type, at.planes)
        return at.of(self.x) if is_float else at.rounded_of(self.x)

    @property
    def _hidden_planes(self) -> int:
        return hidden_planes(self.recording, self.what)

    @property
    def ids(self) -> Span | None:
        """The routes, (T, used)."""
        ids = self.what.ids
        if ids is None or ids.routes is None or self.extent is None:
            return None if ids is None else self.recording.of(ids)
        return ids.routes.span(self.extent)

    @property
    def values(self) -> Span:
        """What the items give, (T * used, rows)."""
        return self.at(self.scratch.parts)

    @property
    def input_weights(self) -> Span | None:
        """What x is times for each item, where it is."""
        return self._route_weights if self.what.banks.weighs_input else None

    @property
    def weights(self) -> Span | None:
        """What the value of each item is times, where it is."""
        return None if self.what.banks.weighs_input else self._route_weights

    @property
    def _route_weights(self) -> Span | None:
        return None if self.what.weights is None else self.recording.of(self.what.weights)

    @property
    def residual(self) -> Span | None:
        """What the sum is added to."""
        return None if self.what.residual is None else self.recording.of(self.what.residual)

    def at(self, buffer: Buffer) -> Span:
        """Where a buffer is that certainly is somewhere."""
        span = self.recording.at(buffer)
        assert span is not None
        return span
