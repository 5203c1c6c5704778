"""A router and the slots of its experts, whose tokens take one launch or three."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from device_arrays import empty, read, upload
from msgspec.structs import replace
from products import random_tokens
from quant_weights import random_weights
from slot_worlds import ExtraSlots, SlotWorld

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Span, flat, named
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts.route import route
from sharpi.ops.cuda.launchers.experts.slot_policy import (
    KernelMissMode,
    Outcome,
    Phase,
    PolicyRules,
)
from sharpi.ops.cuda.launchers.matvec import MatvecArguments, MatvecPart, matvec, with_route
from sharpi.ops.cuda.launchers.slot_route import with_slots
from sharpi.ops.cuda.matvec_layout import bits, rows_at_once
from sharpi.ops.interface import Router, Scoring

COLUMNS = 256
_SINCE = slice(4 * 108, 4 * 110)  # bytes of a layer's state: when the present wait began
Seen = list[npt.NDArray[Any]]


class RoutedSlots:
    """Layers with slots, and a router that all of them use; `block` threads compute its product."""

    def __init__(
        self,
        device: Device,
        rules: PolicyRules,
        slots: Sequence[int],
        quant_type: QuantType = QuantType.F32,
        *,
        block: int | None = None,
        num_groups: int = 1,
    ) -> None:
        extra, warm = ExtraSlots(early=2, staging=1), tuple(range(rules.num_experts))
        self.world = SlotWorld(device, rules, slots, extra, pinned=(1, 5), warm=warm)
        self._device, self._rules, self._type, self._block = device, rules, quant_type, block
        experts, used, self._num_groups = rules.num_experts, rules.experts_per_token, num_groups
        self._matrix = upload(device, random_weights(quant_type, experts, COLUMNS))
        self._bias = [upload(device, random_tokens(1, experts, seed)) for seed in (1, 2)]
        self._x, self.ids = empty(device, 4 * COLUMNS), empty(device, 4 * used)
        self._logits, self._weights = empty(device, 4 * experts), empty(device, 4 * used)
        self.counter = upload(device, np.zeros(1, np.int32))

    def launches(
        self,
        layer: int,
        miss: KernelMissMode = KernelMissMode.BUS,
        phase: Phase = Phase.DECODE,
        route_time: Span | None = None,
    ) -> tuple[Launch, Launch, Launch]:
        """Returns the launches that compute logits, choose experts and decide about their slots."""
        experts, used = self._rules.num_experts, self._rules.experts_per_token
        product = matvec(
            self._x,
            [MatvecPart(self._matrix, self._bias[0], self._logits, self._type, experts, COLUMNS)],
            tokens=1, planes=1,
        )  # fmt: skip
        if self._block is not None:
            product = in_blocks(product, self._block, experts)
        groups, groups_used = self._num_groups, max(1, self._num_groups // 2)
        rules = Router(experts, used, Scoring.SIGMOID, True, 2.5, None, groups, groups_used)
        spans = self._logits, self._bias[1], self.ids, self._weights
        choice = route(*spans, rules, tokens=1, route_time=route_time)
        return product, choice, self.world.tables.use(layer, self.ids, miss, phase)[0]

    def folded(self, launches: tuple[Launch, Launch, Launch]) -> Launch:
        """Returns one launch for these."""
        product, choice, policy = launches
        chosen = with_route(product, choice, self.counter)
        assert chosen is not None
        both = with_slots(chosen, policy)
        assert both is not None
        return both

    def set_token(self, token: int, layer: int) -> None:
        """Sets the router's input, which resembles that of the layer and the token before."""
        x = sum(0.6**i * random_tokens(1, COLUMNS, 10 + token + layer - i) for i in range(3))
        self._device.upload(self._x, np.asarray(x, np.float32))

    def route(self) -> list[int]:
        """Returns the experts that were chosen last."""
        used = self._rules.experts_per_token
        return read(self._device, self.ids, np.int32, (used,)).tolist()  # type: ignore[no-any-return]

    def use_twice(self, layer: int, miss: KernelMissMode, phase: Phase) -> tuple[Seen, Seen]:
        """Returns all that three launches write, and what one writes that begins with the same.

        The times at which waits begin are left out.
        """
        apart = self.launches(layer, miss, phase)
        together = self.folded(apart)
        spans = [s for launch in apart for s in written(launch)]
        before = self._read(spans)
        self.world.run(apart)
        wanted = self._read(spans)
        for span, values in zip(spans, before, strict=True):
            self._device.upload(span, values)
        self.world.run([together])
        found = self._read(spans)
        state = [span == self.world.tables.words.of(layer) for span in spans].index(True)
        wanted[state][_SINCE] = found[state][_SINCE] = 0
        assert read(self._device, self.counter, np.int32, (1,))[0] == 0
        return wanted, found

    def copy_listed(self, layer: int, miss: KernelMissMode, phase: Phase) -> set[Outcome]:
        """Copies what was listed for the token's experts; returns where each of them is read."""
        self.world.run(self.world.tables.use(layer, self.ids, miss, phase)[1:])
        span = self.world.tables.memory[layer].outcomes
        return set(map(Outcome, read(self._device, span, np.int32, (span.num_bytes // 4,))))

    def _read(self, spans: Sequence[Span]) -> Seen:
        return [read(self._device, span, np.uint8, (span.num_bytes,)) for span in spans]


def in_blocks(product: Launch, block: int, rows: int) -> Launch:
    """Returns a product of one matrix with `block` threads in a block."""
    given: MatvecArguments = named(MatvecArguments, product.arguments)
    tile = (block >> given.lane_bits) * rows_at_once(QuantType.F32)
    arguments = flat(given._replace(tile_bits=bits(tile)))
    return replace(product, block=block, grid=(-(-rows // tile), 1, 1), arguments=arguments)


def written(launch: Launch) -> list[Span]:
    """Returns what a launch writes."""
    arguments = (launch.arguments[i] for i in sorted(launch.writes))
    return [argument for argument in arguments if isinstance(argument, Span)]
