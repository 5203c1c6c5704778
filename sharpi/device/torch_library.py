"""TorchLibrary: the matmuls and the attention that torch computes, on one stream of a GPU."""

import math
from contextlib import AbstractContextManager
from functools import cache, cached_property, partial
from typing import Any, cast

from sharpi.device.device import AttendShape
from sharpi.device.fused_attention import (
    FusedKernel,
    efficient,
    flash,
    fused_attention,
    fused_kernel,
)
from sharpi.device.launch import Span


class TorchLibrary:
    """Calls torch on spans of the GPU's memory; `Device` documents the methods of the same names.

    `stream` is the handle of the stream, `index` CUDA's index of the GPU.
    """

    def __init__(self, torch: Any, stream: int, index: int) -> None:
        self._torch, self._stream_handle, self._index = torch, stream, index
        # torch would add up parts of a product in f16.
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        self._fused_kernel = cache(self._find_fused_kernel)

    @cached_property
    def _external_stream(self) -> Any:
        return self._torch.cuda.ExternalStream(self._stream_handle, device=self._index)

    def stream(self) -> AbstractContextManager[Any]:
        """Returns a context manager that makes torch use the stream."""
        return cast(AbstractContextManager[Any], self._torch.cuda.stream(self._external_stream))

    def matmul(self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int]) -> None:
        """Computes out (T, rows) = x (T, columns) weights (rows, columns)^T, all f16."""
        tokens, rows, columns = shape
        with self.stream():
            a = self._halves(x, tokens, columns)
            b = self._halves(weights, rows, columns)
            self._torch.mm(a, b.t(), out=self._halves(out, tokens, rows))

    def batched_matmul(
        self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int, int]
    ) -> None:
        """Computes out[:, m] = x[:, m] weights[m]^T for each matrix m, all f16."""
        tokens, matrices, rows, columns = shape
        with self.stream():
            a = self._halves(x, tokens, matrices, columns).transpose(0, 1)
            b = self._halves(weights, matrices, rows, columns).transpose(1, 2)
            result = self._halves(out, tokens, matrices, rows).transpose(0, 1)
            self._torch.bmm(a, b, out=result)

    def attends(self, shape: AttendShape) -> bool:
        """Returns True if torch has a fused kernel for heads of this shape."""
        return self._kernel_of(shape) is not None

    def attend(
        self, q: Span, keys: Span, values: Span, page_table: Span, out: Span, shape: AttendShape
    ) -> None:
        """Computes causal attention over a paged f16 KV cache by a fused kernel."""
        s = shape
        pages = -(-s.positions // s.page_positions)
        kernel = flash if self._kernel_of(shape) == "flash" else efficient
        with self.stream():
            fused_attention(
                partial(kernel, self._torch),
                self._tensor(q, "<f4", (s.tokens, s.num_heads, s.key_dim)),
                self._tensor(keys, "<f2", (-1, s.num_kv_heads, s.page_positions, s.key_dim)),
                self._tensor(values, "<f2", (-1, s.num_kv_heads, s.page_positions, s.value_dim)),
                self._tensor(page_table, "<i4", (-1,))[:pages],
                self._tensor(out, "<f4", (s.tokens, s.num_heads, s.value_dim)),
                s.positions,
                s.scale,
            )

    def _kernel_of(self, shape: AttendShape) -> FusedKernel | None:
        return self._fused_kernel(shape._replace(tokens=0, positions=0))

    def _find_fused_kernel(self, shape: AttendShape) -> FusedKernel | None:
        try:
            return fused_kernel(self._torch, shape)
        except (AttributeError, TypeError, RuntimeError):  # another version of torch
            return None

    def _halves(self, span: Span, *shape: int) -> Any:
        return self._tensor(span, "<f2", shape)

    def _tensor(self, span: Span, kind: str, shape: tuple[int, ...]) -> Any:
        return self._torch.as_tensor(_ForeignArray(span, kind, shape), device="cuda")


class _ForeignArray:
    """A span with the CUDA array interface, so that torch can use its memory without a copy.

    If the first size in `shape` is -1, it follows from the size of the span.
    """

    def __init__(self, span: Span, kind: str, shape: tuple[int, ...]) -> None:
        self.owner = span.memory
        if shape[0] < 0:
            shape = (span.num_bytes // (int(kind[2]) * math.prod(shape[1:])), *shape[1:])
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": kind,
            "data": (span.address, False),
            "strides": None,
            "version": 2,
        }
