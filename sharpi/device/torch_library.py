"""TorchLibrary: the matmuls and the attention that torch computes, on one stream of a GPU."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, cached_property, partial
from typing import Any, Literal, TypeAlias, cast

from sharpi.device.device import AttendShape
from sharpi.device.launch import Span
from sharpi.system.process import print_running_note

FusedKernel = Literal["flash", "efficient"]
# (q, k, v, scale) -> out, all (1, heads, tokens or positions, dim); the tokens are the last ones.
Attend: TypeAlias = Callable[[Any, Any, Any, float], Any]
_LOWER_RIGHT = 2  # torch.nn.attention.bias.CausalVariant: the tokens are the last of the positions
_TRIED_TOKENS = 16
_MULTIPLE = 8  # kernels need head widths that are multiples of this


def fused_kernel(torch: Any, shape: AttendShape) -> FusedKernel | None:
    """Returns the name of torch's fused kernel for this shape on this GPU; None if none fits.

    The flash kernel needs sm_80 and key_dim equal to value_dim. The memory-efficient kernel does
    not support grouped-query attention.
    """
    s = shape
    if s.key_dim % _MULTIPLE or s.value_dim % _MULTIPLE:
        return None
    backend, is_grouped = torch.backends.cuda, s.num_heads != s.num_kv_heads
    heads = ((s.num_heads, s.key_dim), (s.num_kv_heads, s.key_dim), (s.num_kv_heads, s.value_dim))
    q, k, v = (
        torch.empty((1, count, s.page_positions, dim), dtype=torch.float16, device="cuda")
        for count, dim in heads
    )
    params = backend.SDPAParams(q, k, v, None, 0.0, False, is_grouped)
    if s.key_dim == s.value_dim and backend.can_use_flash_attention(params):
        return "flash"
    if not is_grouped and backend.can_use_efficient_attention(params):
        return "efficient"
    return None


def flash(torch: Any, q: Any, k: Any, v: Any, scale: float) -> Any:
    """Returns the causal attention of a sequence's last tokens, from torch's flash kernel.

    All tensors are f16 (1, heads, tokens or positions, dim).
    """
    call = torch.ops.aten._scaled_dot_product_flash_attention
    return call(q, k, v, 0.0, True, False, scale=scale)[0]


def efficient(torch: Any, q: Any, k: Any, v: Any, scale: float) -> Any:
    """Returns the causal attention of a sequence's last tokens, from the memory-efficient kernel.

    All tensors are f16 (1, heads, tokens or positions, dim).
    """
    call = torch.ops.aten._efficient_attention_forward
    transposed = (each.transpose(1, 2) for each in (q, k, v))
    out = call(*transposed, None, None, None, None, None, 0.0, _LOWER_RIGHT, False, scale=scale)
    return out[0].transpose(1, 2)


_KERNELS: dict[FusedKernel, Callable[..., Any]] = {"flash": flash, "efficient": efficient}


def fused_attention(
    attend: Attend,
    q: Any,
    keys: Any,
    values: Any,
    page_table: Any,
    out: Any,
    positions: int,
    scale: float,
) -> None:
    """Computes out = softmax(scale * q k^T) v with a causal mask, using `attend`.

    The queries belong to the last tokens of a sequence of `positions` tokens. q (tokens, heads,
    key_dim) and out (tokens, heads, value_dim) are float32, keys and values (pages, KV heads, page
    positions, dim) f16. `page_table` lists the sequence's pages in order.
    """
    k, v = (_in_order(pages, page_table, positions) for pages in (keys, values))
    queries = q.to(keys.dtype).transpose(0, 1).unsqueeze(0)
    mixed = attend(queries, k.unsqueeze(0), v.unsqueeze(0), scale)
    out.copy_(mixed.squeeze(0).transpose(0, 1))


def _in_order(pages: Any, page_table: Any, positions: int) -> Any:
    """Gathers a sequence's keys or values from its pages: (KV heads, positions, dim)."""
    chosen = pages.index_select(0, page_table).transpose(0, 1)
    return chosen.reshape(pages.shape[1], -1, pages.shape[3])[:, :positions]


class TorchLibrary:
    """Calls torch on spans of the GPU's memory; `Device` documents the methods of the same names.

    `stream` is the handle of the stream, `index` CUDA's index of the GPU.
    """

    def __init__(self, torch: Any, stream: int, index: int) -> None:
        self._torch, self._stream_handle, self._index = torch, stream, index
        # torch would add up parts of a product in f16.
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        self._fused_kernel = cache(self._find_fused_kernel)
        self._may_attend = True

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
        kernel = _KERNELS[self._kernel_of(shape) or "efficient"]
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
        """Returns the kernel for this shape, once it has computed the attention of some tokens."""
        if not self._may_attend:
            return None
        try:
            kernel = fused_kernel(self._torch, shape)
            if kernel is not None:
                self._try(kernel, shape)
            return kernel
        # Another version of torch, or one without code for this GPU.
        except (AttributeError, TypeError, RuntimeError) as error:
            what = str(error).splitlines()[0]
            print_running_note(f"sharpi's own kernels compute attention, torch's cannot: {what}")
            self._may_attend = False
            return None

    def _try(self, kernel: FusedKernel, s: AttendShape) -> None:
        empty = partial(self._torch.zeros, dtype=self._torch.float16, device="cuda")
        q = empty((1, s.num_heads, _TRIED_TOKENS, s.key_dim))
        k = empty((1, s.num_kv_heads, _TRIED_TOKENS, s.key_dim))
        v = empty((1, s.num_kv_heads, _TRIED_TOKENS, s.value_dim))
        with self.stream():
            _KERNELS[kernel](self._torch, q, k, v, s.scale)
            self._torch.cuda.current_stream().synchronize()

    def free_unused(self) -> None:
        """Gives back the memory that torch keeps for later calls."""
        self._torch.cuda.empty_cache()

    def multiply_some(self) -> None:
        """Multiplies 16 rows; raises RuntimeError if torch has no code for this GPU."""
        with self.stream():
            ones = self._torch.ones((_TRIED_TOKENS, 64), dtype=self._torch.float16, device="cuda")
            self._torch.mm(ones, ones.t()).sum().item()

    def _halves(self, span: Span, *shape: int) -> Any:
        return self._tensor(span, "<f2", shape)

    def _tensor(self, span: Span, kind: str, shape: tuple[int, ...]) -> Any:
        return self._torch.as_tensor(_ForeignArray(span, kind, shape), device="cuda")


class _ForeignArray:
    """A span with the CUDA array interface; if `shape` begins with -1, the span's size decides."""

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
