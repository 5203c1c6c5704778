"""The batched product that a GPU computes with torch, on the CPU; skipped without torch."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from lazy_packages import OnUse, needs

from sharpi.device.torch_library import TorchLibrary

torch = OnUse("torch")
pytestmark = needs("torch")


class OnHost(TorchLibrary):
    """The library without a GPU; its spans hold arrays of f16."""

    def __init__(self) -> None:
        self._torch = torch

    def stream(self) -> Any:
        return nullcontext()

    def _tensor(self, span: Any, kind: str, shape: tuple[int, ...]) -> Any:
        assert kind == "<f2"
        return torch.from_numpy(span.array).view(shape)


@pytest.mark.parametrize("shape", [(33, 5, 7, 9), (1, 1, 1, 1), (64, 4, 16, 32), (32, 1, 8, 3)])
def test_each_matrix_multiplies_its_own_rows(shape: tuple[int, int, int, int]) -> None:
    tokens, matrices, rows, columns = shape
    random = np.random.default_rng(2)
    x = random.normal(size=(tokens, matrices, columns)).astype(np.float16)
    weights = random.normal(size=(matrices, rows, columns)).astype(np.float16)
    out = np.full((tokens, matrices, rows), np.nan, np.float16)
    spans: list[Any] = [SimpleNamespace(array=each.reshape(-1)) for each in (x, weights, out)]
    OnHost().batched_matmul(spans[0], spans[1], spans[2], shape)
    wanted = np.einsum("tmc,mrc->tmr", x.astype(np.float64), weights.astype(np.float64))
    np.testing.assert_allclose(out, wanted, rtol=2**-10, atol=2e-5)
