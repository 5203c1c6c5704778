"""Weights and the NUMA nodes of the threads that read them, on nodes that this machine has not."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from attention_models import HIDDEN, TABLE
from msgspec.structs import replace
from replay import Native, matrix, stacked

from sharpi.hardware.topology import ThreadPlace
from sharpi.ops.cpu.abi import PageSpan
from sharpi.ops.cpu.library import ThreadPool
from sharpi.ops.cpu.program import place_pages
from sharpi.ops.interface import Activation, ExpertWeights, Router

pytestmark = pytest.mark.native
RNG = np.random.default_rng(3)
ROUTER = matrix(RNG, 8, HIDDEN)
EXPERTS = ExpertWeights(
    stacked(RNG, 8, 256, HIDDEN), stacked(RNG, 8, 256, HIDDEN), stacked(RNG, 8, HIDDEN, 256)
)
OUTPUT = matrix(RNG, 640, HIDDEN)
NODES = [ThreadPlace(node=0)] * 2 + [ThreadPlace(node=1)] * 2


def model(ops: Any) -> Any:
    x = ops.embed(TABLE, 1.0)
    (logits,) = ops.linear(x, [ROUTER])
    route = ops.route(logits, Router(8, 3))
    x = ops.experts(x, EXPERTS, Activation.SILU, route, x, 0.5)
    (out,) = ops.linear(ops.select_outputs(x), [OUTPUT])
    return out


@pytest.fixture
def native() -> Native:
    return Native(model)


def spans_of(native: Native, places: list[ThreadPlace]) -> list[PageSpan]:
    pool = ThreadPool(len(places), places)
    spans = native.program.page_spans(pool)
    pool.close()
    return spans


def test_each_weight_lies_on_one_node(native: Native) -> None:
    spans = spans_of(native, NODES)
    stacks = (EXPERTS.gate, EXPERTS.up, EXPERTS.down)
    arrays = [ROUTER.data, OUTPUT.data, *(stack.data for stack in stacks if stack is not None)]
    assert sum(span.bytes for span in spans) == sum(array.nbytes for array in arrays)
    ends = [(span.at, span.at + span.bytes) for span in spans]
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))


def test_nodes_have_the_same_rows_of_every_expert(native: Native) -> None:
    down = EXPERTS.down
    begin, size = down.data.ctypes.data, down.data.nbytes // 8
    inside = [s for s in spans_of(native, NODES) if begin <= s.at < begin + 8 * size]
    firsts = {(s.at - begin) % size for s in inside if s.node == 0}
    seconds = {(s.at - begin) % size for s in inside if s.node == 1}
    assert firsts == {0}
    assert len(seconds) == 1
    assert len(inside) == 16


def test_a_faster_node_has_more(native: Native) -> None:
    places = [ThreadPlace(node=0, speed=1.0)] * 3 + [ThreadPlace(node=1, speed=0.5)] * 2
    begin, size = OUTPUT.data.ctypes.data, OUTPUT.data.nbytes
    first, second = [s for s in spans_of(native, places) if begin <= s.at < begin + size]
    assert (first.node, second.node) == (0, 1)
    assert first.bytes / size == pytest.approx(0.75, abs=0.04)


@pytest.mark.parametrize("tokens", [1, 3, 40])
def test_rows_kept_on_nodes_give_the_same_bits(native: Native, tokens: int) -> None:
    ids = RNG.integers(0, 50, tokens).tolist()
    by_rows = Native(model, limits=replace(native.limits, shares_rows=True), places=NODES)
    for threads in (1, 2, 4):
        assert np.array_equal(by_rows.run([ids], threads), native.run([ids], 2))


def test_pages_are_moved_or_the_reason_is_told(native: Native) -> None:
    spans = spans_of(native, [ThreadPlace(node=0)])
    before = OUTPUT.data.copy()
    note = place_pages(spans, [ThreadPlace(node=0)])
    assert note is None or note.startswith("weights were not moved")
    assert np.array_equal(OUTPUT.data, before)


def test_a_node_that_is_missing_is_told(native: Native) -> None:
    note = place_pages(spans_of(native, [ThreadPlace(node=900)]), [ThreadPlace(node=900)])
    assert note is not None
    assert "NUMA" in note
