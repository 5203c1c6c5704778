"""A feed-forward of a recording: which launches it becomes, by the number of tokens and experts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from sharpi.device.launch import Span
from sharpi.gguf.quant_types import row_bytes
from sharpi.ops.abi import Rows
from sharpi.ops.cuda.card_banks import CardBanks
from sharpi.ops.cuda.expert_launches import ExpertLaunches, Parts
from sharpi.ops.cuda.expert_stream import ExpertStream
from sharpi.ops.cuda.experts import BankPart
from sharpi.ops.cuda.feed_forward import GROUPED_TOKENS, FeedForward, make_scratch
from sharpi.ops.cuda.foresight import Foresight
from sharpi.ops.cuda.half_products import HalfProducts, OnCard, is_product
from sharpi.ops.cuda.linear_calls import want_source
from sharpi.ops.cuda.packed_experts import PackedExperts
from sharpi.ops.cuda.partial_layers import PartialLayers
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.cuda.values import Call, Extent, Value
from sharpi.ops.interface import Bank


def feed_forward(
    recording: Recording,
    banks: CardBanks,
    x: Value,
    what: FeedForward,
    own: Foresight | None = None,
    following: Foresight | None = None,
) -> Value:
    """Appends residual + scale * sum of weight * down(act(gate x) * up x): (hidden,).

    `own`: guesses of what this layer is to use, `following`: those of the next one.
    """
    want_source(recording, x, what.first_half)
    others = (what.ids, what.weights, what.residual)
    recording.floats(*(value for value in others if value is not None))
    out = recording.value(what.banks.down.rows, x.rows)
    is_partial = what.ids is not None and banks.is_partial(what.banks)
    scratch = make_scratch(recording, x, what, is_partial=is_partial)
    if scratch.halves is not None or is_partial:
        recording.floats(x)
    launches = ExpertLaunches(recording, x, what, out, scratch)
    if is_partial:
        layer = banks.want_partial(what.banks, what.activation, x.rows, recording.limits)
        if own is not None:
            recording.hold(own.ids)
        if following is not None:
            recording.hold(*following.values)
        calls = _PartialCalls(launches, banks, layer, own, following).calls
        recording.append_experts(layer, calls)
    else:
        wanted = tuple(banks.want(bank) for bank in (*what.first_half, what.banks.down))
        recording.append(_Calls(launches, wanted).calls)
    return out


@dataclass(frozen=True, slots=True)
class _Calls:
    """Of experts that are on the card as a whole."""

    launches: ExpertLaunches
    wanted: tuple[Callable[[], BankPart], ...]

    def calls(self, extent: Extent) -> Iterator[Call]:
        it = replace(self.launches, extent=extent)
        tokens = extent.rows(it.x.rows)
        if not tokens:
            return
        halves, parts = it.scratch.halves, [want() for want in self.wanted]
        if halves is not None and is_product(tokens, extent):
            yield from self._dense(parts, tokens, halves)
        elif it.ids is not None and tokens >= GROUPED_TOKENS:
            yield from _grouped(it, parts, extent)
        else:
            yield from it.by_item(parts, tokens)

    def _dense(self, parts: Parts, tokens: int, halves: HalfProducts) -> Iterator[Call]:
        it = self.launches
        yield from halves.source(it.recording.of(it.x), tokens, it.x.width)
        for bank, part, out in it.first_half(parts):
            yield from halves.product(_on_card(bank, part), out, tokens)
        yield it.activate(tokens, 0)
        down = it.what.banks.down
        yield from halves.source(it.at(it.scratch.hidden), tokens, down.columns)
        yield from halves.product(_on_card(down, parts[-1]), it.values, tokens)
        yield it.merge(tokens)


@dataclass(frozen=True, slots=True)
class _PartialCalls:
    """Of experts of which some have slots."""

    launches: ExpertLaunches
    banks: CardBanks
    layer: int
    own: Foresight | None = None
    following: Foresight | None = None

    def calls(self, extent: Extent) -> Iterator[Call]:
        here = replace(self, launches=replace(self.launches, extent=extent))
        tokens, ids = extent.rows(self.launches.x.rows), here.launches.ids
        partial = self.banks.partial
        assert partial is not None
        assert ids is not None
        extent = partial.extent(self.layer, extent)
        if extent.sequences > 1:
            yield from here._company(partial, tokens, extent)
        elif tokens == 1:
            yield from here._token(partial, ids, extent)
        elif tokens:
            yield from here._batch(partial, ids, extent)
            if extent.group in (None, partial.passage.num_groups(self.layer) - 1):
                yield from partial.use_batch(self.layer, ids, tokens)

    def _token(self, partial: PartialLayers, ids: Span, extent: Extent) -> Iterator[Call]:
        """What was guessed for this layer is there; guesses for the next one go on beside it."""
        own, following, at = self.own, self.following, self.launches.recording
        if following is not None:
            yield from following.guess(extent)
        if own is not None:
            yield from own.fetched(extent)
        yield from partial.use(self.layer, ids, extent.misses)
        if following is not None:
            yield from following.fetch(at, partial, self.layer, extent)
        parts = partial.parts(self.layer)
        if extent.misses == "cpu":
            yield from self._with_host(parts, ids, 1)
        else:
            yield from self.launches.by_item(parts, 1)
        if following is not None:
            yield from following.guessed(extent)

    def _company(self, partial: PartialLayers, tokens: int, extent: Extent) -> Iterator[Call]:
        """Tokens of several sequences: each one's experts are looked up in turn.

        An expert that a later token evicts is found at home by the earlier one; but what is in
        staging stays for one look-up only, so with that each computes before the next.
        """
        step = 1 if extent.misses == "load" else max(1, tokens)
        for first in range(0, tokens, step):
            for row in range(first, first + step):
                ids = self.launches.since(row).ids
                assert ids is not None
                yield from partial.use(self.layer, ids, extent.misses)
            some = replace(self, launches=self.launches.since(first))
            yield from some._looked_up(partial.parts(self.layer), step, extent)

    def _looked_up(self, parts: Parts, tokens: int, extent: Extent) -> Iterator[Call]:
        it = self.launches
        if extent.misses == "cpu":
            yield from self._batch_with_host(parts, tokens)
        elif tokens >= GROUPED_TOKENS:
            yield from _grouped(it, parts, extent)
        else:
            yield from it.by_item(parts, tokens)

    def _batch(self, partial: PartialLayers, ids: Span, extent: Extent) -> Iterator[Call]:
        it, parts = self.launches, partial.passing_parts(self.layer)
        tokens = extent.rows(it.x.rows)
        way = partial.passage.way(self.layer)
        if way == "host":
            yield from self._batch_with_host(parts, tokens)
        elif way == "streamed":
            yield from self._streamed(partial.passage.stream, parts, extent)
        elif tokens >= GROUPED_TOKENS:
            yield from _grouped(it, parts, extent)
        else:
            yield from it.by_item(parts, tokens)

    def _streamed(self, stream: ExpertStream, parts: Parts, extent: Extent) -> Iterator[Call]:
        """Experts pass in groups, through buffers that are filled meanwhile."""
        it, turns = self.launches, self._turns(extent)
        tokens, all_chunks = extent.rows(it.x.rows), stream.chunks(self.layer)
        chunks = all_chunks if extent.group is None else [all_chunks[extent.group]]
        packed = _packed(it)
        if packed is None:
            yield it.group(tokens)
        for chunk in chunks:
            some = range(chunk.first, chunk.first + chunk.count)
            if extent.turn == turns[0]:
                yield from stream.bring(chunk)
            if packed is not None:
                yield from packed.values(parts, tokens, some, is_exact=extent.is_exact)
            else:
                yield from it.grouped_values(parts, tokens, chunk.first, chunk.count)
            if extent.turn == turns[-1]:
                yield from stream.done(chunk)
        if packed is None and len(chunks) == len(all_chunks):
            yield it.merge(tokens)
        elif packed is None:
            yield it.merge_group(tokens, some)

    def _turns(self, extent: Extent) -> range:
        """Those of the batches that pass by this layer's experts; outputs are of one alone."""
        if self.launches.x.rows is Rows.OUTPUTS:
            return range(extent.turn, extent.turn + 1)
        return range(extent.turns)

    def _batch_with_host(self, parts: Parts, tokens: int) -> Iterator[Call]:
        """As many tokens at a time as certainly have rows."""
        packed, used = self.launches.scratch.packed, self.launches.what.used
        step = tokens if packed is None else packed.num_rows // used
        for first in range(0, tokens, step):
            some = replace(self, launches=self.launches.since(first))
            assert some.launches.ids is not None
            yield from some._with_host(parts, some.launches.ids, min(step, tokens - first))

    def _with_host(self, parts: Parts, ids: Span, tokens: int) -> Iterator[Call]:
        """The host computes what the card has not, while the card computes the rest."""
        it, host = self.launches, self.banks.host
        what, places = it.what, it.at(it.scratch.places)
        sizes = {"tokens": tokens, "used": what.used}
        yield from host.ask(
            ids, parts[0].addresses, it.input, it.input_weights, places,
            columns=it.x.width, **sizes,
        )  # fmt: skip
        if tokens >= GROUPED_TOKENS:
            yield from it.grouped(parts, tokens)
        else:
            yield from it.item_values(parts, tokens)
        yield from host.merge(
            it.values, places, ids, it.weights, it.sums,
            layer=self.layer, rows=what.banks.down.rows, residual=it.residual, scale=what.scale,
            **sizes,
        )  # fmt: skip


def _packed(it: ExpertLaunches) -> PackedExperts | None:
    """Where routed tokens have fewer rows than they may need."""
    packed, routed = it.scratch.packed, it.recording.routed
    if packed is None or routed is None:
        return None
    at_once = routed.experts_at_once(it.what.banks.down.num_experts)
    return PackedExperts(it, packed.num_rows, at_once)


def _grouped(it: ExpertLaunches, parts: Parts, extent: Extent) -> Iterator[Call]:
    """All experts, which can be reached; what they give, and its sum."""
    tokens, packed = extent.rows(it.x.rows), _packed(it)
    if packed is None:
        yield from it.grouped(parts, tokens)
        yield it.merge(tokens)
    else:
        experts = range(it.what.banks.down.num_experts)
        yield from packed.values(parts, tokens, experts, is_exact=extent.is_exact)


def _on_card(bank: Bank, part: BankPart) -> OnCard:
    """Expert 0 of a bank that is on the card as a whole."""
    first = bank.first_row * row_bytes(bank.quant_type, bank.columns)
    data = part.reach[0].part(first, bank.expert_bytes)
    factor = 1.0 if bank.scales is None else float(bank.scales[0])
    return OnCard(data, part.bias, bank.quant_type, bank.rows, bank.columns, factor)
