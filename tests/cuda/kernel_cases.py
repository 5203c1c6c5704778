"""Small runs of the product's kernels, through their launchers, each with its result."""

from typing import Any

import gathered_experts as gathered
import numpy as np
import numpy.typing as npt
from device_arrays import empty, read, upload
from expert_weights import stacked_experts
from products import operand, random_tokens
from quant_weights import random_weights
from routed_slots import RoutedSlots

from sharpi.device.device import Device
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers import elementwise
from sharpi.ops.cuda.launchers import matvec as product
from sharpi.ops.cuda.launchers import rms_norm as norm
from sharpi.ops.cuda.launchers.attention import heads as head
from sharpi.ops.cuda.launchers.attention.heads import with_join
from sharpi.ops.cuda.launchers.elementwise import quantise as quantise_rows
from sharpi.ops.cuda.launchers.experts import experts, experts_grouped
from sharpi.ops.cuda.launchers.experts import route as router
from sharpi.ops.cuda.launchers.experts.experts import GpuStackedMatrix
from sharpi.ops.cuda.launchers.experts.slot_policy import PolicyRules
from sharpi.ops.cuda.launchers.f16_rows import F16Rows, to_f16
from sharpi.ops.cuda.matvec_layout import activation_bytes
from sharpi.ops.interface import Router, Scoring

Result = npt.NDArray[Any]


def rms_norm(device: Device) -> Result:
    """Groups of 24 columns, so that a block of threads takes four of them; two warps each."""
    x = random_tokens(2, 8 * 72)
    out, quantised = empty(device, x.nbytes), empty(device, 2 * (8 * 72 * 5 // 4))
    spans = (upload(device, x), upload(device, random_tokens(1, 72)), out, quantised)
    device.launch(
        norm.rms_norm(
            *spans, tokens=2, width=72, groups=8, weight_per_group=False, epsilon=1e-6, planes=1
        )
    )
    return read(device, out, np.float32, x.shape)


def quantise(device: Device) -> Result:
    """Three tokens of 96 columns."""
    return operand(device, random_tokens(3, 96), 2).seen


def matvec(device: Device) -> Result:
    """Q8_0, whose rows are 2-byte aligned: 35 rows of 2 blocks, three tokens."""
    weights = upload(device, random_weights(QuantType.Q8_0, 35, 64))
    out = empty(device, 3 * 35 * 4)
    bias, kind = upload(device, random_tokens(1, 35)), QuantType.Q8_0
    part = product.MatvecPart(weights, bias, out, kind, rows=35, columns=64)
    x = operand(device, random_tokens(3, 64), 1).span
    device.launch(product.matvec(x, [part], tokens=3, planes=1))
    return read(device, out, np.float32, (3, 35))


def experts_gather_gate_up(device: Device) -> Result:
    """A token of three experts of Q8_0, of which two are copied: one from its host copy."""
    return gathered.run(device, QuantType.Q8_0, 1, ((2, 4, 2), (0, 3, 0)), folds=True)


def slot_route(device: Device) -> Result:
    """Three tokens of 24 experts by learned-keep, in blocks of two warps."""
    rules = PolicyRules(kind=4, num_layers=1, num_experts=24, experts_per_token=3)
    some = RoutedSlots(device, rules, (8,))
    seen = []
    for token in range(3):
        some.set_token(token, 0)
        device.launch(some.folded(some.launches(0)))
        seen += some.route()
    return np.array([*seen, *some.world.tables.words.read_states()[0].slot_of])


def experts_f16_product(device: Device) -> Result:
    """F16: two experts of 70 rows, three steps of columns; 9 and 5 items of unlike sizes."""
    weights = upload(device, random_weights(QuantType.F16, 2 * 70, 136))
    addresses = np.array([weights.address, weights.address + 70 * 136 * 2], np.uint64)
    table = upload(device, addresses)
    stacked = GpuStackedMatrix(QuantType.F16, 70, 136, table, None, (weights,))
    lists = [upload(device, np.array(each, np.int32)) for each in ((0, 9, 14), range(14))]
    x = random_tokens(14, 136) * np.exp2(np.arange(14, dtype=np.float32))[:, None]
    rows = F16Rows(empty(device, 2 * x.size), empty(device, 14 * 4))
    device.launch(to_f16(upload(device, x), rows, tokens=14, width=136))
    out, groups = empty(device, 14 * 70 * 4), experts_grouped.Groups(*lists, experts=2, used=1)
    device.launch(experts_grouped.product(rows, groups, stacked, out, planes=1))
    return read(device, out, np.float32, (14, 70))


def heads(device: Device) -> Result:
    """Rotation of 2 tokens of 3 heads: halves of a head meet in shared memory."""
    x, angles = random_tokens(2, 3 * 80), random_tokens(2, 2 * 40)
    span = upload(device, x)
    rope = head.HeadRope(upload(device, angles), 40)
    device.launch(head.heads([head.HeadGroup(span, 3, 80, rope=rope)], tokens=2))
    return read(device, span, np.float32, x.shape)


def join_heads(device: Device) -> Result:
    """Two heads of 80 values, rotated behind 130 others."""
    x, first = upload(device, random_tokens(2, 80)), upload(device, random_tokens(2, 130))
    rope = head.HeadRope(upload(device, random_tokens(1, 80)), 40)
    out = empty(device, 4 * 2 * 210)
    prepared = head.heads([head.HeadGroup(x, 2, 80, rope=rope)], tokens=1)
    both = with_join(prepared, elementwise.join(first, x, out, widths=(130, 80), runs=2))
    assert both is not None
    device.launch(both)
    return read(device, out, np.float32, (2, 210))


def experts_product(device: Device) -> Result:
    """Two heads of 96 columns, each with a matrix of 64 rows of Q8_0, and their quantising."""
    stacked = stacked_experts(device, QuantType.Q8_0, (2, 64, 96), has_bias=False)
    ids, out = upload(device, np.arange(2, dtype=np.int32)), empty(device, 4 * 128)
    rows, x = empty(device, activation_bytes(128, 1)), operand(device, random_tokens(2, 96), 1)
    product = experts.product(x.span, experts.Items(ids, 2), stacked.part, out, planes=1)
    both = experts.product_with_quantise(
        product, quantise_rows(out, rows, tokens=1, columns=128, planes=1)
    )
    assert both is not None
    device.launch(both)
    return read(device, rows, np.uint8, (rows.num_bytes,))


def route(device: Device) -> Result:
    """The best 6 of 64 experts in 4 groups, for two tokens."""
    logits = random_tokens(2, 64)
    ids, weights = empty(device, 48), empty(device, 48)
    rules = Router(64, 6, Scoring.SIGMOID, num_groups=4, groups_used=2)
    device.launch(router.route(upload(device, logits), None, ids, weights, rules, tokens=2))
    return read(device, ids, np.int32, (2, 6))


def group_routes(device: Device) -> Result:
    """300 items of 5 experts."""
    ids = np.random.default_rng(0).integers(0, 5, 300, np.int32)
    offsets, items = empty(device, 24), empty(device, 1200)
    sizes = {"tokens": 150, "used": 2, "experts": 5}
    device.launch(router.group_routes(upload(device, ids), offsets, items, **sizes))
    return read(device, items, np.int32, (300,))
