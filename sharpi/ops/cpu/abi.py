"""The C structs of kernels/cpu/operations/ops.h and of the headers beside it, as ctypes structures.

`make abi` writes this file from the headers.
"""

from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_uint64, c_void_p
from enum import IntEnum

MAX_MATRICES = 4
MAX_PARTS = 4


class Step(Structure):
    _fields_ = (
        ("num_tokens", c_int32), ("num_outputs", c_int32), ("ids", POINTER(c_int32)),
        ("positions", POINTER(c_int32)), ("sequences", POINTER(c_int32)),
        ("output_rows", POINTER(c_int32)), ("page_table", POINTER(c_int32)),
        ("pages_per_sequence", c_int32), ("num_predicted", c_int32), ("states", POINTER(c_void_p)),
        ("states_after", POINTER(c_void_p)), ("slots", POINTER(c_int32)),
        ("num_kept", POINTER(c_int32)), ("kept_table", POINTER(c_int32)),
    )  # fmt: skip


class Rows(IntEnum):
    TOKENS = 0
    OUTPUTS = 1
    PREDICTED = 2


class ThreadPlace(Structure):
    _fields_ = (
        ("cores", POINTER(c_int32)), ("num_cores", c_int32), ("node", c_int32), ("group", c_int32),
        ("speed", c_float),
    )  # fmt: skip


class PageSpan(Structure):
    _fields_ = (("at", c_void_p), ("bytes", c_uint64), ("node", c_int32), ("reserved", c_int32))


class KvLayerParams(Structure):
    _fields_ = (
        ("data", c_void_p), ("heads", c_int32), ("key_dim", c_int32), ("value_dim", c_int32),
        ("value_stride", c_int32), ("values_in_keys", c_int32), ("key_type", c_int32),
        ("value_type", c_int32), ("key_rotation", c_int32), ("value_rotation", c_int32),
        ("page_bytes", c_int32), ("in_rows", c_int32), ("reserved", c_int32),
    )  # fmt: skip


class OpKind(IntEnum):
    EMBED = 0
    RMS_NORM = 1
    LINEAR = 2
    ROPE_ANGLES = 3
    ROPE = 4
    KV_STORE = 5
    ATTENTION = 6
    ROUTE = 7
    EXPERTS = 8
    ADD_SCALED = 9
    GATHER = 10
    UNARY = 11
    ACQUIRE = 13
    PREDICT_ROUTES = 14
    LAYER_NORM = 15
    HEAD_LINEAR = 16
    SCALE_BY_POSITION = 17
    JOIN = 18
    PART = 19
    KV_KEEP = 20
    GATE_HEADS = 21
    CHOOSE = 22
    CONVOLUTION = 32
    DELTA_NET = 33
    MAMBA2 = 34
    GATED = 35
    SPLIT = 36


class EmbedParams(Structure):
    _fields_ = (
        ("table", c_void_p), ("type", c_int32), ("rows", c_int32), ("columns", c_int32),
        ("scale", c_float), ("out", c_void_p),
    )  # fmt: skip


class RmsNormParams(Structure):
    _fields_ = (
        ("x", c_void_p), ("weight", c_void_p), ("out", c_void_p), ("width", c_int32),
        ("groups", c_int32), ("weight_per_group", c_int32), ("epsilon", c_float), ("rows", c_int32),
    )  # fmt: skip


class LayerNormParams(Structure):
    _fields_ = (
        ("x", c_void_p), ("weight", c_void_p), ("bias", c_void_p), ("out", c_void_p),
        ("width", c_int32), ("epsilon", c_float), ("rows", c_int32), ("reserved", c_int32),
    )  # fmt: skip


class MatrixParams(Structure):
    _fields_ = (
        ("data", c_void_p), ("type", c_int32), ("rows", c_int32), ("columns", c_int32),
        ("reserved", c_int32), ("bias", c_void_p), ("residual", c_void_p), ("out", c_void_p),
        ("scale", c_float), ("weight_scale", c_float),
    )  # fmt: skip


class LinearParams(Structure):
    _fields_ = (
        ("x", c_void_p), ("num_matrices", c_int32), ("precision", c_int32), ("rows", c_int32),
        ("reserved", c_int32), ("matrices", MatrixParams * MAX_MATRICES),
    )  # fmt: skip


class RopeAnglesParams(Structure):
    _fields_ = (
        ("frequencies", c_void_p), ("cosines", c_void_p), ("sines", c_void_p), ("half", c_int32),
        ("scale", c_float),
    )  # fmt: skip


class RopeParams(Structure):
    _fields_ = (
        ("x", c_void_p), ("cosines", c_void_p), ("sines", c_void_p), ("heads", c_int32),
        ("head_dim", c_int32), ("half", c_int32), ("interleaved", c_int32),
    )  # fmt: skip


class KvStoreParams(Structure):
    _fields_ = (
        ("keys", c_void_p), ("values", c_void_p), ("cache", KvLayerParams), ("precision", c_int32),
        ("reserved", c_int32),
    )  # fmt: skip


class Chosen(Structure):
    _fields_ = (
        ("blocks", c_void_p), ("choices", c_int32), ("count", c_int32), ("block", c_int32),
        ("reserved", c_int32),
    )  # fmt: skip


class ChooseParams(Structure):
    _fields_ = (
        ("queries", c_void_p), ("weights", c_void_p), ("blocks", c_void_p),
        ("cache", KvLayerParams), ("num_heads", c_int32), ("count", c_int32), ("block", c_int32),
        ("local", c_int32), ("scale", c_float), ("precision", c_int32),
    )  # fmt: skip


class AttentionParams(Structure):
    _fields_ = (
        ("queries", c_void_p), ("out", c_void_p), ("cache", KvLayerParams), ("num_heads", c_int32),
        ("window", c_int32), ("scale", c_float), ("soft_cap", c_float), ("is_chunked", c_int32),
        ("precision", c_int32), ("sinks", c_void_p), ("chosen", Chosen),
    )  # fmt: skip


class KvKeepParams(Structure):
    _fields_ = (
        ("queries", c_void_p), ("cache", KvLayerParams), ("num_heads", c_int32),
        ("precision", c_int32), ("scale", c_float), ("soft_cap", c_float),
    )  # fmt: skip


class RouteParams(Structure):
    _fields_ = (
        ("logits", c_void_p), ("bias", c_void_p), ("ids", c_void_p), ("weights", c_void_p),
        ("num_experts", c_int32), ("k", c_int32), ("scoring", c_int32), ("normalise", c_int32),
        ("scale", c_float), ("num_groups", c_int32), ("groups_used", c_int32), ("rows", c_int32),
    )  # fmt: skip


class AcquireParams(Structure):
    _fields_ = (
        ("feed", c_void_p), ("ids", c_void_p), ("layer", c_int32), ("k", c_int32),
        ("rows", c_int32), ("reserved", c_int32),
    )  # fmt: skip


class PredictRoutesParams(Structure):
    _fields_ = (
        ("feed", c_void_p), ("logits", c_void_p), ("bias", c_void_p), ("layer", c_int32),
        ("num_experts", c_int32), ("k", c_int32), ("reserved", c_int32),
    )  # fmt: skip


class StackedMatrixParams(Structure):
    _fields_ = (
        ("data", c_void_p), ("bias", c_void_p), ("scales", c_void_p), ("type", c_int32),
        ("rows", c_int32), ("columns", c_int32), ("first_row", c_int32),
    )  # fmt: skip


class ExpertsParams(Structure):
    _fields_ = (
        ("x", c_void_p), ("ids", c_void_p), ("weights", c_void_p), ("residual", c_void_p),
        ("out", c_void_p), ("gate", StackedMatrixParams), ("up", StackedMatrixParams),
        ("down", StackedMatrixParams), ("num_experts", c_int32), ("k", c_int32),
        ("activation", c_int32), ("precision", c_int32), ("scale", c_float), ("rows", c_int32),
        ("feed", c_void_p), ("layer", c_int32), ("weighs_input", c_int32),
    )  # fmt: skip


class AddScaledParams(Structure):
    _fields_ = (
        ("a", c_void_p), ("b", c_void_p), ("out", c_void_p), ("width", c_int32), ("scale", c_float),
        ("rows", c_int32), ("reserved", c_int32),
    )  # fmt: skip


class GatherParams(Structure):
    _fields_ = (("x", c_void_p), ("out", c_void_p), ("width", c_int32), ("reserved", c_int32))


class UnaryParams(Structure):
    _fields_ = (
        ("x", c_void_p), ("width", c_int32), ("rows", c_int32), ("function", c_int32),
        ("a", c_float), ("b", c_float), ("c", c_float), ("d", c_float), ("reserved", c_int32),
    )  # fmt: skip


class GatedParams(Structure):
    _fields_ = (
        ("gate", c_void_p), ("x", c_void_p), ("out", c_void_p), ("width", c_int32),
        ("activation", c_int32), ("rows", c_int32), ("reserved", c_int32),
    )  # fmt: skip


class SplitParams(Structure):
    _fields_ = (
        ("x", c_void_p), ("groups", c_int32), ("num_parts", c_int32), ("rows", c_int32),
        ("reserved", c_int32), ("widths", c_int32 * MAX_PARTS), ("outs", c_void_p * MAX_PARTS),
    )  # fmt: skip


class HeadLinearParams(Structure):
    _fields_ = (
        ("x", c_void_p), ("stacked", StackedMatrixParams), ("out", c_void_p),
        ("num_heads", c_int32), ("precision", c_int32),
    )  # fmt: skip


class ScaleByPositionParams(Structure):
    _fields_ = (
        ("x", c_void_p), ("width", c_int32), ("interval", c_int32), ("rate", c_float),
        ("offset", c_int32),
    )  # fmt: skip


class GateHeadsParams(Structure):
    _fields_ = (
        ("gate", c_void_p), ("x", c_void_p), ("width", c_int32), ("num_gates", c_int32),
        ("activation", c_int32), ("reserved", c_int32),
    )  # fmt: skip


class JoinParams(Structure):
    _fields_ = (
        ("first", c_void_p), ("second", c_void_p), ("out", c_void_p), ("widths", c_int32 * 2),
        ("groups", c_int32), ("rows", c_int32),
    )  # fmt: skip


class PartParams(Structure):
    _fields_ = (
        ("x", c_void_p), ("out", c_void_p), ("x_width", c_int32), ("begin", c_int32),
        ("width", c_int32), ("rows", c_int32),
    )  # fmt: skip


class ConvolutionParams(Structure):
    _fields_ = (
        ("x", c_void_p), ("weight", c_void_p), ("bias", c_void_p), ("out", c_void_p),
        ("state_offset", c_int64), ("channels", c_int32), ("kernel", c_int32), ("silu", c_int32),
        ("reserved", c_int32),
    )  # fmt: skip


class DeltaNetParams(Structure):
    _fields_ = (
        ("qkv", c_void_p), ("beta", c_void_p), ("alpha", c_void_p), ("a", c_void_p),
        ("dt_bias", c_void_p), ("out", c_void_p), ("state_offset", c_int64), ("key_heads", c_int32),
        ("value_heads", c_int32), ("key_dim", c_int32), ("value_dim", c_int32), ("by_key", c_int32),
        ("floor", c_float), ("tiled", c_int32), ("epsilon", c_float),
    )  # fmt: skip


class Mamba2Params(Structure):
    _fields_ = (
        ("xbc", c_void_p), ("dt", c_void_p), ("a", c_void_p), ("d", c_void_p),
        ("dt_bias", c_void_p), ("out", c_void_p), ("state_offset", c_int64), ("heads", c_int32),
        ("groups", c_int32), ("head_dim", c_int32), ("state_size", c_int32),
    )  # fmt: skip
