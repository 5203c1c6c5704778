"""The kernels around grouped products, and torch's grouped product itself on the CPU."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice
from cpu_library import from_bf16, to_bf16
from device_arrays import empty, read, upload
from expert_weights import random_routes, stacked_experts
from lazy_packages import OnUse, needs
from reference_numbers import gated

from sharpi.device.device import Device
from sharpi.device.grouped_product import grouped_product, has_grouped_products
from sharpi.device.launch import Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.launchers.experts import bf16_rows
from sharpi.ops.interface import Activation

EXPERTS, USED, TOKENS, WIDTH = 5, 2, 9, 264
ITEMS = TOKENS * USED
torch = OnUse("torch")
QUANTISED = [QuantType.Q4_0, QuantType.Q4_K, QuantType.Q6_K, QuantType.MXFP4, QuantType.IQ2_XS]
KINDS = [*QUANTISED, QuantType.F16, QuantType.BF16]


def lists(device: Device) -> tuple[np.ndarray, Span, Span]:
    """Items by expert, without those of expert 1, which gets none."""
    ids, _ = random_routes(TOKENS, EXPERTS, USED)
    items = [item for e in range(EXPERTS) if e != 1 for item in np.flatnonzero(ids.ravel() == e)]
    counts = [0 if e == 1 else int((ids == e).sum()) for e in range(EXPERTS)]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    padded = np.array([*items, *[0] * (ITEMS - len(items))], np.int32)
    return np.array(items), upload(device, offsets), upload(device, padded)


@pytest.mark.parametrize("quant_type", KINDS, ids=str)
def test_experts_are_dequantised(device: Device, quant_type: QuantType) -> None:
    """An expert without items is left as it was."""
    rows, columns = 6, 256
    stacked = stacked_experts(device, quant_type, (EXPERTS, rows, columns), has_factors=True)
    _, offsets, _ = lists(device)
    out = upload(device, np.full((EXPERTS, rows, columns), 7, np.uint16))
    sizes = {"experts": EXPERTS, "rows": rows, "columns": columns}
    device.launch(
        bf16_rows.dequantise_experts(stacked.part, offsets, out, quant_type=quant_type, **sizes)
    )
    found = read(device, out, np.uint16, (EXPERTS, rows, columns))
    assert (found[1] == 7).all()
    used = [0, 2, 3, 4]
    np.testing.assert_allclose(from_bf16(found[used]), stacked.dense[used], rtol=2**-8)


@pytest.mark.parametrize("is_weighted", [True, False])
def test_rows_of_items(device: Device, is_weighted: bool) -> None:
    items, offsets, listed = lists(device)
    x = np.random.default_rng(1).standard_normal((TOKENS, WIDTH), np.float32)
    weights = np.random.default_rng(2).random(ITEMS, np.float32)
    out = upload(device, np.full((ITEMS, WIDTH), 7, np.uint16))
    device.launch(
        bf16_rows.items_to_bf16(
            *(upload(device, x), offsets, listed),
            *(upload(device, weights) if is_weighted else None, out),
            experts=EXPERTS, num_items=ITEMS, used=USED, width=WIDTH,
        )
    )  # fmt: skip
    found = read(device, out, np.uint16, (ITEMS, WIDTH))
    wanted = x[items // USED] * (weights[items][:, None] if is_weighted else np.float32(1))
    np.testing.assert_array_equal(found[: len(items)], to_bf16(wanted))
    assert (found[len(items) :] == 7).all()


@pytest.mark.parametrize("has_up", [True, False])
def test_activation_and_floats(device: Device, has_up: bool) -> None:
    items, offsets, _ = lists(device)
    rng = np.random.default_rng(3)
    gate, up = (to_bf16(rng.standard_normal((ITEMS, WIDTH), np.float32)) for _ in range(2))
    hidden, out = upload(device, gate), empty(device, 4 * ITEMS * WIDTH)
    device.upload(out, np.full(ITEMS * WIDTH, 7, np.float32))
    sizes = {"experts": EXPERTS, "num_items": ITEMS, "width": WIDTH}
    other = upload(device, up) if has_up else None
    device.launch(bf16_rows.activate(hidden, other, offsets, activation=Activation.SILU, **sizes))
    device.launch(bf16_rows.from_bf16(hidden, offsets, out, **sizes))
    found = read(device, out, np.float32, (ITEMS, WIDTH))
    wanted = gated(Activation.SILU, from_bf16(gate), from_bf16(up) if has_up else np.ones_like(up))
    np.testing.assert_allclose(found[: len(items)], wanted[: len(items)], rtol=2**-8, atol=1e-30)
    assert (found[len(items) :] == 7).all()


def test_a_devices_grouped_product(device: Device) -> None:
    """On a GPU it is torch's, through the array interface, which has no name for bf16."""
    if not isinstance(device, CpuDevice) and not device.has_grouped_products:
        pytest.skip("torch multiplies one by one on this GPU")
    rng = np.random.default_rng(5)
    x, weights = (to_bf16(rng.standard_normal(n)) for n in ((20, 64), (3, 24, 64)))
    ends, out = np.array([0, 5, 5, 17], np.int32), empty(device, 2 * 20 * 24)
    spans = upload(device, x), upload(device, weights), out, upload(device, ends)
    device.grouped_matmul(*spans, (20, 3, 24, 64))
    found = from_bf16(read(device, out, np.uint16, (20, 24))[:17])
    left, right = from_bf16(x), from_bf16(weights)
    wanted = np.concatenate([left[:5] @ right[0].T, left[5:17] @ right[2].T])
    assert np.abs(found - wanted).max() < 2**-8 * np.abs(wanted).max()


@needs("torch")
def test_torch_multiplies_in_groups() -> None:
    """Rows behind the last end may get any values."""
    import torch

    rng = np.random.default_rng(4)
    x, weights = rng.standard_normal((20, 16)), rng.standard_normal((3, 24, 16))
    x, weights = (torch.tensor(each, dtype=torch.bfloat16) for each in (x, weights))
    out = torch.empty((20, 24), dtype=torch.bfloat16)
    grouped_product(torch, x, weights, torch.tensor([5, 5, 17], dtype=torch.int32), out)
    wanted = torch.cat(
        [x[:5].float() @ weights[0].float().T, x[5:17].float() @ weights[2].float().T]
    )
    assert (out[:17].float() - wanted).abs().max() < 2**-8 * wanted.abs().max()


@pytest.mark.parametrize(
    ("capability", "product", "has"),
    [(90, "right", True), (100, "right", True), (89, "right", False), (120, "right", False),
     (90, "missing", False), (90, "refused", False), (90, "wrong", False)],
)  # fmt: skip
@needs("torch")
def test_they_are_tried_once(capability: int, product: str, has: bool) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("not on this GPU")

    tried: dict[str, Any] = {
        "right": lambda x, w, offs: x @ w[0],
        "refused": refuse,
        "wrong": lambda x, w, offs: x,
    }
    names = {name: getattr(torch, name) for name in ("bfloat16", "int32", "empty_like")}
    fake = SimpleNamespace(
        **names,
        ones=lambda size, dtype, device: torch.ones(size, dtype=dtype),
        full=lambda size, value, dtype, device: torch.full(size, value, dtype=dtype),
    )
    if product in tried:
        fake._grouped_mm = tried[product]
    assert has_grouped_products(fake, capability) == has
