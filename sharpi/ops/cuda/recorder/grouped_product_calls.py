"""Makes the calls that compute a large batch's experts with torch's grouped GEMM.

Groups of experts are dequantised to bf16 one after the other. Results are summed in the same order
as by other kernels, but they are rounded to bf16.
"""

from collections.abc import Iterator

from msgspec import Struct

from sharpi.device.launch import Span
from sharpi.ops.cuda.launchers.experts import bf16_rows, experts_packed
from sharpi.ops.cuda.launchers.experts.experts import GpuStackedMatrix
from sharpi.ops.cuda.recorded import Call, GroupedProduct
from sharpi.ops.cuda.recorder.expert_launches import ExpertLaunches
from sharpi.ops.cuda.recorder.expert_operands import Parts
from sharpi.ops.cuda.recorder.grouped_products import GroupedProducts
from sharpi.ops.interface import StackedMatrix


def grouped_product_sum(
    launches: ExpertLaunches, parts: Parts, tokens: int, products: GroupedProducts
) -> Iterator[Call]:
    """Yields the calls that compute and sum the values of all experts."""
    num_experts = launches.ffn.expert_weights.down.num_experts
    yield launches.group(tokens)
    for first in range(0, num_experts, products.at_once):
        group = range(first, min(first + products.at_once, num_experts))
        some = [part.some(first, len(group), num_experts) for part in parts]
        yield from _Group(launches, products, some, group, tokens).calls()


class _Group(Struct, frozen=True):
    """The calls for a range of experts that are dequantised and multiplied together."""

    launches: ExpertLaunches
    products: GroupedProducts
    parts: Parts
    experts: range
    tokens: int

    def calls(self) -> Iterator[Call]:
        launches, ffn = self.launches, self.launches.ffn
        yield self._pack()
        yield bf16_rows.items_to_bf16(
            launches.input, self._offsets, self._items, launches.input_weights, self._x,
            experts=len(self.experts), num_items=self._num_items, used=ffn.used,
            width=ffn.expert_weights.up.columns,
        )  # fmt: skip
        pair = [launches.at(each) for each in self.products.pair]
        for stacked, part, out in zip(ffn.gate_and_up, self.parts[:-1], pair, strict=True):
            yield from self._product(self._x, stacked, part, out)
        hidden, down = pair[0], ffn.expert_weights.down
        yield bf16_rows.activate(
            hidden, pair[1] if len(pair) > 1 else None, self._offsets,
            activation=ffn.activation, experts=len(self.experts), num_items=self._num_items,
            width=down.columns,
        )  # fmt: skip
        yield from self._product(hidden, down, self.parts[-1], self._x)
        yield bf16_rows.from_bf16(
            self._x, self._offsets, launches.values,
            experts=len(self.experts), num_items=self._num_items, width=down.rows,
        )  # fmt: skip
        yield launches.merge_group(self.tokens, self.experts, launches.at(self.products.item_rows))

    def _pack(self) -> Call:
        launches, count = self.launches, len(self.experts)
        item_rows, is_over = (
            launches.at(self.products.item_rows),
            launches.at(self.products.is_over),
        )
        listed = launches.at(launches.scratch.offsets).part(4 * self.experts.start, 4 * (count + 1))
        return experts_packed.pack_routes(
            listed, launches.at(launches.scratch.items), self._offsets, self._items, item_rows,
            is_over,
            experts=count, num_items=self._num_items, capacity=self._num_items,
        )  # fmt: skip

    def _product(
        self, x: Span, stacked: StackedMatrix, part: GpuStackedMatrix, out: Span
    ) -> Iterator[Call]:
        weights, count = self.launches.at(self.products.weights), len(self.experts)
        yield bf16_rows.dequantise_experts(
            part, self._offsets, weights,
            quant_type=stacked.quant_type, experts=count, rows=stacked.rows,
            columns=stacked.columns,
        )  # fmt: skip
        shape = self._num_items, count, stacked.rows, stacked.columns
        yield GroupedProduct(x, weights, out, self._offsets, shape)

    @property
    def _num_items(self) -> int:
        return self.tokens * self.launches.ffn.used

    @property
    def _offsets(self) -> Span:
        return self.launches.at(self.products.offsets)

    @property
    def _items(self) -> Span:
        return self.launches.at(self.products.items)

    @property
    def _x(self) -> Span:
        return self.launches.at(self.products.x)
