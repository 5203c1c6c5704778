"""The launches of a feed-forward: item by item, grouped by expert, or as plain products."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sharpi.device.launch import Launch, Span
from sharpi.gguf.quant_types import row_bytes
from sharpi.ops.buffers import Buffer
from sharpi.ops.cuda import experts, experts_grouped, group_routes
from sharpi.ops.cuda.card_banks import CardBanks
from sharpi.ops.cuda.experts import BankPart
from sharpi.ops.cuda.feed_forward import (
    GROUPED_TOKENS,
    FeedForward,
    Scratch,
    hidden_planes,
    make_scratch,
)
from sharpi.ops.cuda.half_products import PRODUCT_TOKENS, HalfProducts, OnCard
from sharpi.ops.cuda.lanes import takes_floats
from sharpi.ops.cuda.linear_calls import want_source
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.cuda.values import Call, Extent, Value
from sharpi.ops.interface import Bank


def feed_forward(recording: Recording, banks: CardBanks, x: Value, what: FeedForward) -> Value:
    """Appends residual + scale * sum of weight * down(act(gate x) * up x): (hidden,)."""
    want_source(recording, x, what.first_half)
    others = (what.ids, what.weights, what.residual)
    recording.floats(*(value for value in others if value is not None))
    out = recording.value(what.banks.down.rows, x.rows)
    scratch = make_scratch(recording, x, what)
    if scratch.halves is not None:
        recording.floats(x)
    layer = what.banks.layer
    parts = tuple(banks.want(bank, layer) for bank in (*what.first_half, what.banks.down))
    recording.append(_Calls(recording, x, what, parts, out, scratch).calls)
    return out


@dataclass(frozen=True, slots=True)
class _Calls:
    recording: Recording
    x: Value
    what: FeedForward
    parts: tuple[Callable[[], BankPart], ...]
    out: Value
    scratch: Scratch

    def calls(self, extent: Extent) -> Iterator[Call]:
        tokens = extent.rows(self.x.rows)
        if not tokens:
            return
        if self.scratch.halves is not None and tokens >= PRODUCT_TOKENS:
            yield from self._dense(tokens, self.scratch.halves)
        elif self.what.ids is not None and tokens >= GROUPED_TOKENS:
            yield from self._grouped(tokens, self.recording.of(self.what.ids))
        else:
            yield from self._by_item(tokens)

    def _by_item(self, tokens: int) -> Iterator[Call]:
        what, down = self.what, self.what.banks.down
        ids = None if what.ids is None else self.recording.of(what.ids)
        lists, sizes = (ids,), {"tokens": tokens, "used": what.used}
        yield from self._hidden(tokens, experts.gate_up, experts.product, lists, sizes)
        yield experts.down(
            self._at(self.scratch.hidden), ids, self._weights, self.parts[-1](),
            self.recording.of(self.out),
            quant_type=down.quant_type, tokens=tokens, used=what.used, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes, residual=self._residual, scale=what.scale,
        )  # fmt: skip

    def _grouped(self, tokens: int, ids: Span) -> Iterator[Call]:
        what, down = self.what, self.what.banks.down
        offsets, items = lists = self._at(self.scratch.offsets), self._at(self.scratch.items)
        sizes = {"experts": down.num_experts, "used": what.used}
        yield group_routes.group_routes(ids, offsets, items, tokens=tokens, **sizes)
        halves = experts_grouped.gate_up, experts_grouped.product
        yield from self._hidden(tokens, *halves, lists, sizes)
        values = self._at(self.scratch.parts)
        yield experts_grouped.down(
            self._at(self.scratch.hidden), offsets, items, self.parts[-1](), values,
            quant_type=down.quant_type, experts=down.num_experts, columns=down.columns,
            rows=down.rows, planes=self._hidden_planes,
        )  # fmt: skip
        yield self._merge(tokens, ids, values)

    def _hidden(
        self,
        tokens: int,
        gate_up: Callable[..., Launch],
        product: Callable[..., Launch],
        lists: tuple[Span | None, ...],
        sizes: dict[str, int],
    ) -> Iterator[Call]:
        """The first half, by launchers that find an item's expert in these lists."""
        what, up = self.what, self.what.banks.up
        weights = self._input_weights
        if what.is_fused:
            parts = [part() for part in self.parts[:-1]]
            yield gate_up(
                self._source(up), *lists, *parts, self._at(self.scratch.hidden),
                quant_type=up.quant_type, activation=what.activation,
                hidden_planes=self._hidden_planes, input_weights=weights,
                **sizes, **self._sizes(up),
            )  # fmt: skip
            return
        for bank, part, out in self._first_half():
            yield product(
                self._source(bank), *lists, part, out,
                quant_type=bank.quant_type, input_weights=weights, **sizes, **self._sizes(bank),
            )  # fmt: skip
        yield self._activate(tokens, self._hidden_planes)

    def _dense(self, tokens: int, halves: HalfProducts) -> Iterator[Call]:
        yield from halves.source(self.recording.of(self.x), tokens, self.x.width)
        for bank, part, out in self._first_half():
            yield from halves.product(_on_card(bank, part), out, tokens)
        yield self._activate(tokens, 0)
        down, values = self.what.banks.down, self._at(self.scratch.parts)
        yield from halves.source(self._at(self.scratch.hidden), tokens, down.columns)
        yield from halves.product(_on_card(down, self.parts[-1]()), values, tokens)
        yield self._merge(tokens, None, values)

    def _merge(self, tokens: int, ids: Span | None, values: Span) -> Call:
        return experts_grouped.merge(
            values, ids, self._weights, self.recording.of(self.out),
            tokens=tokens, used=self.what.used, rows=self.what.banks.down.rows,
            residual=self._residual, scale=self.what.scale,
        )  # fmt: skip

    def _activate(self, tokens: int, planes: int) -> Call:
        """What becomes of gate and up, or of up alone."""
        pair = [self._at(buffer) for buffer in self.scratch.pair]
        return experts.activate(
            pair[0], pair[1] if len(pair) > 1 else None, self._at(self.scratch.hidden),
            activation=self.what.activation, items=tokens * self.what.used,
            rows=self.what.banks.up.rows, hidden_planes=planes,
        )  # fmt: skip

    def _first_half(self) -> Iterator[tuple[Bank, BankPart, Span]]:
        for bank, part, out in zip(
            self.what.first_half, self.parts[:-1], self.scratch.pair, strict=True
        ):
            yield bank, part(), self._at(out)

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
    def _input_weights(self) -> Span | None:
        return self._route_weights if self.what.banks.weighs_input else None

    @property
    def _weights(self) -> Span | None:
        return None if self.what.banks.weighs_input else self._route_weights

    @property
    def _route_weights(self) -> Span | None:
        return None if self.what.weights is None else self.recording.of(self.what.weights)

    @property
    def _residual(self) -> Span | None:
        return None if self.what.residual is None else self.recording.of(self.what.residual)

    def _at(self, buffer: Buffer) -> Span:
        span = self.recording.at(buffer)
        assert span is not None
        return span


def _on_card(bank: Bank, part: BankPart) -> OnCard:
    """Expert 0 of a bank that is on the card as a whole."""
    first = bank.first_row * row_bytes(bank.quant_type, bank.columns)
    data = part.reach[0].part(first, bank.expert_bytes)
    factor = 1.0 if bank.scales is None else float(bank.scales[0])
    return OnCard(data, part.bias, bank.quant_type, bank.rows, bank.columns, factor)
