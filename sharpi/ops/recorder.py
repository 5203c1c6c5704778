"""Records a model's step as native operations: the model runs once over this object.

Values are buffers; what an operation needs to know of them is kept as a closure that is called
when all addresses are known. The result is a `Program`, replayed for every token.
"""

from collections.abc import Callable, Sequence
from ctypes import Structure

import numpy as np
import numpy.typing as npt

from sharpi.ops import abi
from sharpi.ops.abi import OpKind, Rows
from sharpi.ops.buffers import Buffer, aligned_bytes, place
from sharpi.ops.interface import (
    Activation,
    AttentionShape,
    Bank,
    ExpertBanks,
    ExpertSource,
    FloatArray,
    Matrix,
    RopeTable,
    Router,
)
from sharpi.ops.kv_cache import KvCache, value_stride
from sharpi.ops.program import Place, Program, ProgramLimits

_FLOAT_BYTES = 4


class Recorder:
    """Implements `Ops[Buffer]`; call `finish` with the logits to get the program."""

    def __init__(
        self,
        limits: ProgramLimits,
        cache: KvCache,
        source: ExpertSource | None = None,
        *,
        keeps_router_logits: bool = False,
    ) -> None:
        self._limits = limits
        self._cache = cache
        self._source = source
        self._keeps_router_logits = keeps_router_logits
        self._router_logits: list[Buffer] = []
        self._buffers: list[Buffer] = []
        self._operations: list[tuple[OpKind, Callable[[], Structure]]] = []
        self._alive: list[object] = []
        self._routes: list[Buffer] = []
        self._arena = np.zeros(0, np.uint8)

    def embed(self, table: Matrix, scale: float) -> Buffer:
        out = self._buffer(table.columns)
        return self._add(
            OpKind.EMBED,
            [out],
            lambda: abi.EmbedParams(
                self._data(table.data),
                table.quant_type,
                table.rows,
                table.columns,
                scale,
                self._at(out),
            ),
        )

    def rms_norm(self, x: Buffer, weight: FloatArray, epsilon: float, groups: int = 1) -> Buffer:
        return self._norm(x, weight, epsilon, groups, self._buffer(x.width, x.rows))

    def _norm(
        self, x: Buffer, weight: FloatArray, epsilon: float, groups: int, out: Buffer
    ) -> Buffer:
        width = x.width // groups
        per_group = int(groups > 1 and weight.size == x.width)
        return self._add(
            OpKind.RMS_NORM,
            [out, x],
            lambda: abi.RmsNormParams(
                self._at(x),
                self._data(weight),
                self._at(out),
                width,
                groups,
                per_group,
                epsilon,
                out.rows,
            ),
        )

    def linear(self, x: Buffer, matrices: Sequence[Matrix]) -> list[Buffer]:
        outs = [self._buffer(m.rows, x.rows) for m in matrices]
        self._linear(x, [(m, out, None, 1.0) for m, out in zip(matrices, outs, strict=True)])
        return outs

    def linear_add(self, x: Buffer, matrix: Matrix, residual: Buffer, scale: float) -> Buffer:
        out = self._buffer(matrix.rows, x.rows)
        self._linear(x, [(matrix, out, residual, scale)])
        return out

    def _linear(self, x: Buffer, parts: list[tuple[Matrix, Buffer, Buffer | None, float]]) -> None:
        def params() -> Structure:
            p = abi.LinearParams(self._at(x), len(parts), self._limits.precision_code, x.rows)
            for i, (m, out, residual, scale) in enumerate(parts):
                p.matrices[i] = abi.MatrixParams(
                    self._data(m.data), m.quant_type, m.rows, m.columns, 0, self._data(m.bias),
                    self._at(residual), self._at(out), scale,
                )  # fmt: skip
            return p

        touched = [
            x,
            *(out for _, out, _, _ in parts),
            *(r for _, _, r, _ in parts if r is not None),
        ]
        self._add(OpKind.LINEAR, touched, params)

    def rope_angles(self, table: RopeTable) -> Buffer:
        half = len(table.frequencies)
        out = self._buffer(2 * half)
        sines = self._limits.max_tokens * half * _FLOAT_BYTES
        return self._add(
            OpKind.ROPE_ANGLES,
            [out],
            lambda: abi.RopeAnglesParams(
                self._data(table.frequencies),
                self._at(out),
                self._at(out, sines),
                half,
                table.scale,
            ),
        )

    def rope(self, x: Buffer, num_heads: int, angles: Buffer, interleaved: bool) -> Buffer:
        half = angles.width // 2
        sines = self._limits.max_tokens * half * _FLOAT_BYTES
        return self._add(
            OpKind.ROPE,
            [x, angles],
            lambda: abi.RopeParams(
                self._at(x), self._at(angles), self._at(angles, sines),
                num_heads, x.width // num_heads, half, interleaved,
            ),
        )  # fmt: skip

    def attention(self, q: Buffer, k: Buffer, v: Buffer, shape: AttentionShape) -> Buffer:
        layer = abi.KvLayerParams(
            self._data(self._cache.layers[shape.layer]),
            shape.num_kv_heads,
            shape.key_dim,
            shape.value_dim,
            value_stride(shape),
        )
        self._add(
            OpKind.KV_STORE, [k, v], lambda: abi.KvStoreParams(self._at(k), self._at(v), layer)
        )
        out = self._buffer(shape.num_heads * shape.value_dim)
        return self._add(
            OpKind.ATTENTION,
            [out, q],
            lambda: abi.AttentionParams(
                self._at(q),
                self._at(out),
                layer,
                shape.num_heads,
                shape.window,
                shape.scale,
                shape.soft_cap,
            ),
        )

    def route(self, logits: Buffer, router: Router) -> tuple[Buffer, Buffer]:
        ids = self._buffer(router.num_used, logits.rows)
        weights = self._buffer(router.num_used, logits.rows)
        ids.kept = True  # statistics read the step's routes afterwards
        self._routes.append(ids)
        if self._keeps_router_logits:
            logits.kept = True
            self._router_logits.append(logits)
        self._add(
            OpKind.ROUTE,
            [logits, ids, weights],
            lambda: abi.RouteParams(
                self._at(logits), self._data(router.bias), self._at(ids), self._at(weights),
                router.num_experts, router.num_used, router.scoring, router.normalise,
                router.scale, router.num_groups, router.groups_used, logits.rows,
            ),
        )  # fmt: skip
        if self._source is not None:
            self._lease(self._source, ids, router.layer)
        return ids, weights

    def _lease(self, source: ExpertSource, ids: Buffer, layer: int) -> None:
        self._add(
            OpKind.LEASE,
            [ids],
            lambda: abi.LeaseParams(source.handle, self._at(ids), layer, ids.width, ids.rows),
        )

    def foresee(
        self, x: Buffer, norm: FloatArray, epsilon: float, matrix: Matrix, router: Router
    ) -> None:
        source = self._source
        if source is None or not source.asks_router:
            return
        h, logits = self._buffer(x.width, Rows.GUESSED), self._buffer(matrix.rows, Rows.GUESSED)
        self._norm(x, norm, epsilon, 1, h)
        self._linear(h, [(matrix, logits, None, 1.0)])
        self._add(
            OpKind.FORESEE,
            [logits],
            lambda: abi.ForeseeParams(
                source.handle, self._at(logits), self._data(router.bias), router.layer,
                router.num_experts, router.num_used,
            ),
        )  # fmt: skip

    def experts(
        self,
        x: Buffer,
        banks: ExpertBanks,
        activation: Activation,
        route: tuple[Buffer, Buffer] | None,
        residual: Buffer | None,
        scale: float = 1.0,
    ) -> Buffer:
        ids, weights = route or (None, None)
        return self._experts(x, banks, activation, ids, weights, residual, scale)

    def gated_expert(
        self,
        x: Buffer,
        banks: ExpertBanks,
        activation: Activation,
        weight: Buffer,
        residual: Buffer,
    ) -> Buffer:
        return self._experts(x, banks, activation, None, weight, residual, 1.0)

    def _experts(
        self,
        x: Buffer,
        banks: ExpertBanks,
        activation: Activation,
        ids: Buffer | None,
        weights: Buffer | None,
        residual: Buffer | None,
        scale: float,
    ) -> Buffer:
        feed = None if ids is None or self._source is None else self._source.handle
        out = self._buffer(banks.down.rows, x.rows)
        touched = [x, out, *(b for b in (ids, weights, residual) if b is not None)]
        return self._add(
            OpKind.EXPERTS,
            [out, *touched],
            lambda: abi.ExpertsParams(
                self._at(x), self._at(ids), self._at(weights), self._at(residual), self._at(out),
                self._bank(banks, 0), self._bank(banks, 1), self._bank(banks, 2),
                banks.gate.num_experts, 1 if ids is None else ids.width, activation,
                self._limits.precision_code, scale, x.rows, feed, banks.layer or 0,
            ),
        )  # fmt: skip

    def _bank(self, banks: ExpertBanks, piece: int) -> abi.BankParams:
        bank = (banks.gate, banks.up, banks.down)[piece]
        if banks.layer is None or self._source is None:
            table = self._data(_addresses(bank))
        else:
            table = self._source.table(banks.layer, piece)
        return abi.BankParams(
            table, self._data(bank.bias), bank.quant_type, bank.rows, bank.columns
        )

    def add(self, a: Buffer, b: Buffer, scale: float) -> Buffer:
        return self._add_scaled(a, b, scale)

    def scale(self, x: Buffer, factor: float) -> Buffer:
        return self._add_scaled(None, x, factor)

    def _add_scaled(self, a: Buffer | None, b: Buffer, scale: float) -> Buffer:
        out = self._buffer(b.width, b.rows)
        return self._add(
            OpKind.ADD_SCALED,
            [out, b] if a is None else [out, a, b],
            lambda: abi.AddScaledParams(
                self._at(a), self._at(b), self._at(out), b.width, scale, b.rows
            ),
        )

    def sigmoid(self, x: Buffer) -> Buffer:
        return self._add(
            OpKind.SIGMOID, [x], lambda: abi.SigmoidParams(self._at(x), x.width, x.rows)
        )

    def soft_cap(self, x: Buffer, cap: float) -> Buffer:
        return self._add(
            OpKind.SOFT_CAP, [x], lambda: abi.SoftCapParams(self._at(x), x.width, x.rows, cap)
        )

    def select_outputs(self, x: Buffer) -> Buffer:
        out = self._buffer(x.width, Rows.OUTPUTS)
        return self._add(
            OpKind.GATHER, [out, x], lambda: abi.GatherParams(self._at(x), self._at(out), x.width)
        )

    def finish(self, logits: Buffer) -> Program:
        """Places the buffers, hands every operation to the library and seals the program."""
        logits.kept = True
        self._arena = aligned_bytes(place(self._buffers))
        program = Program(self._limits, self._arena, self._alive)
        for kind, params in self._operations:
            program.append(kind, params())
        program.seal(
            logits=_place(logits),
            routes=[_place(each) for each in self._routes],
            router_logits=[_place(each) for each in self._router_logits],
        )
        return program

    def _buffer(self, width: int, rows: Rows = Rows.TOKENS) -> Buffer:
        limits, now = self._limits, len(self._operations)
        most = {Rows.TOKENS: limits.max_tokens, Rows.OUTPUTS: limits.max_outputs, Rows.GUESSED: 1}
        buffer = Buffer(most[rows] * width * _FLOAT_BYTES, width, rows, now, now)
        self._buffers.append(buffer)
        return buffer

    def _add(
        self, kind: OpKind, touched: Sequence[Buffer], params: Callable[[], Structure]
    ) -> Buffer:
        """Appends an operation that touches these buffers; returns the first of them."""
        for buffer in touched:
            buffer.last = len(self._operations)
        self._operations.append((kind, params))
        return touched[0]

    def _at(self, buffer: Buffer | None, offset: int = 0) -> int | None:
        return None if buffer is None else self._arena.ctypes.data + buffer.offset + offset

    def _data(self, array: np.ndarray | None) -> int | None:
        """The array's address; the program keeps the array alive."""
        if array is None:
            return None
        self._alive.append(array)
        return int(array.ctypes.data)


def _place(buffer: Buffer) -> Place:
    return Place(buffer.offset, buffer.width, buffer.num_bytes // (buffer.width * _FLOAT_BYTES))


def _addresses(bank: Bank) -> npt.NDArray[np.uint64]:
    """Where each expert's matrix begins, (experts)."""
    stride = bank.data.nbytes // bank.num_experts
    offsets = np.arange(bank.num_experts, dtype=np.uint64) * np.uint64(stride)
    return np.uint64(bank.data.ctypes.data) + offsets
