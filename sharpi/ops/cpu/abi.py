"""The C structs of kernels/cpu/operations/ops.h and runtime/stage.h, as ctypes structures.

When the native library is loaded, its field offsets are compared with the ones here.
"""

from ctypes import POINTER, Structure, c_float, c_int32, c_uint64, c_void_p
from enum import IntEnum

MAX_MATRICES = 4
MAX_PARTS = 4


class OpKind(IntEnum):
    """The numbers by which the native library identifies operations."""

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
    SIGMOID = 11
    SOFT_CAP = 12
    ACQUIRE = 13
    PREDICT_ROUTES = 14
    LAYER_NORM = 15
    HEAD_LINEAR = 16
    SCALE_BY_POSITION = 17
    JOIN = 18
    PART = 19
    KV_KEEP = 20
    GATE_HEADS = 21
    CONVOLUTION = 32
    DELTA_NET = 33
    MAMBA2 = 34
    GATED = 35
    SPLIT = 36


class Rows(IntEnum):
    """The number of rows of a value in a step.

    TOKENS is one row per token, OUTPUTS one per token whose logits are requested, and PREDICTED one
    per token for which routes of later layers are predicted.
    """

    TOKENS = 0
    OUTPUTS = 1
    PREDICTED = 2


class Step(Structure):
    """The inputs of one step; `Step` of kernels/cpu/runtime/stage.h describes the fields."""

    _fields_ = (
        ("num_tokens", c_int32),
        ("num_outputs", c_int32),
        ("ids", POINTER(c_int32)),
        ("positions", POINTER(c_int32)),
        ("sequences", POINTER(c_int32)),
        ("output_rows", POINTER(c_int32)),
        ("page_table", POINTER(c_int32)),
        ("pages_per_sequence", c_int32),
        ("num_predicted", c_int32),
        ("states", POINTER(c_void_p)),
        ("states_after", POINTER(c_void_p)),
        ("slots", POINTER(c_int32)),
        ("num_kept", POINTER(c_int32)),
        ("kept_table", POINTER(c_int32)),
    )


class ThreadPlace(Structure):
    """A thread's cores, NUMA node, cache group and speed (kernels/cpu/threads/thread_place.h)."""

    _fields_ = (
        ("cores", POINTER(c_int32)),
        ("num_cores", c_int32),
        ("node", c_int32),
        ("group", c_int32),
        ("speed", c_float),
    )


class PageSpan(Structure):
    """A range of weights, and the NUMA node of the threads that read it."""

    _fields_ = (
        ("at", c_void_p),
        ("bytes", c_uint64),
        ("node", c_int32),
        ("reserved", c_int32),
    )


class EmbedParams(Structure):
    _fields_ = (
        ("table", c_void_p),
        ("type", c_int32),
        ("rows", c_int32),
        ("columns", c_int32),
        ("scale", c_float),
        ("out", c_void_p),
    )


class RmsNormParams(Structure):
    _fields_ = (
        ("x", c_void_p),
        ("weight", c_void_p),
        ("out", c_void_p),
        ("width", c_int32),
        ("groups", c_int32),
        ("weight_per_group", c_int32),
        ("epsilon", c_float),
        ("rows", c_int32),
    )


class LayerNormParams(Structure):
    _fields_ = (
        ("x", c_void_p),
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("out", c_void_p),
        ("width", c_int32),
        ("epsilon", c_float),
        ("rows", c_int32),
        ("reserved", c_int32),
    )


class MatrixParams(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("type", c_int32),
        ("rows", c_int32),
        ("columns", c_int32),
        ("reserved", c_int32),
        ("bias", c_void_p),
        ("residual", c_void_p),
        ("out", c_void_p),
        ("scale", c_float),
        ("weight_scale", c_float),
    )


class LinearParams(Structure):
    _fields_ = (
        ("x", c_void_p),
        ("num_matrices", c_int32),
        ("precision", c_int32),
        ("rows", c_int32),
        ("reserved", c_int32),
        ("matrices", MatrixParams * MAX_MATRICES),
    )


class RopeAnglesParams(Structure):
    _fields_ = (
        ("frequencies", c_void_p),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("half", c_int32),
        ("scale", c_float),
    )


class RopeParams(Structure):
    _fields_ = (
        ("x", c_void_p),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("heads", c_int32),
        ("head_dim", c_int32),
        ("half", c_int32),
        ("interleaved", c_int32),
    )


class KvLayerParams(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("heads", c_int32),
        ("key_dim", c_int32),
        ("value_dim", c_int32),
        ("value_stride", c_int32),
        ("values_in_keys", c_int32),
        ("key_type", c_int32),
        ("value_type", c_int32),
        ("key_rotation", c_int32),
        ("value_rotation", c_int32),
        ("reserved", c_int32),
    )


class KvStoreParams(Structure):
    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("cache", KvLayerParams),
        ("precision", c_int32),
        ("reserved", c_int32),
    )


class AttentionParams(Structure):
    _fields_ = (
        ("queries", c_void_p),
        ("out", c_void_p),
        ("cache", KvLayerParams),
        ("num_heads", c_int32),
        ("window", c_int32),
        ("scale", c_float),
        ("soft_cap", c_float),
        ("is_chunked", c_int32),
        ("precision", c_int32),
        ("sinks", c_void_p),
    )


class KvKeepParams(Structure):
    _fields_ = (
        ("queries", c_void_p),
        ("cache", KvLayerParams),
        ("num_heads", c_int32),
        ("precision", c_int32),
        ("scale", c_float),
        ("soft_cap", c_float),
    )


class RouteParams(Structure):
    _fields_ = (
        ("logits", c_void_p),
        ("bias", c_void_p),
        ("ids", c_void_p),
        ("weights", c_void_p),
        ("num_experts", c_int32),
        ("k", c_int32),
        ("scoring", c_int32),
        ("normalise", c_int32),
        ("scale", c_float),
        ("num_groups", c_int32),
        ("groups_used", c_int32),
        ("rows", c_int32),
    )


class AcquireParams(Structure):
    _fields_ = (
        ("feed", c_void_p),
        ("ids", c_void_p),
        ("layer", c_int32),
        ("k", c_int32),
        ("rows", c_int32),
        ("reserved", c_int32),
    )


class PredictRoutesParams(Structure):
    _fields_ = (
        ("feed", c_void_p),
        ("logits", c_void_p),
        ("bias", c_void_p),
        ("layer", c_int32),
        ("num_experts", c_int32),
        ("k", c_int32),
        ("reserved", c_int32),
    )


class StackedMatrixParams(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("bias", c_void_p),
        ("scales", c_void_p),
        ("type", c_int32),
        ("rows", c_int32),
        ("columns", c_int32),
        ("first_row", c_int32),
    )


class ExpertsParams(Structure):
    _fields_ = (
        ("x", c_void_p),
        ("ids", c_void_p),
        ("weights", c_void_p),
        ("residual", c_void_p),
        ("out", c_void_p),
        ("gate", StackedMatrixParams),
        ("up", StackedMatrixParams),
        ("down", StackedMatrixParams),
        ("num_experts", c_int32),
        ("k", c_int32),
        ("activation", c_int32),
        ("precision", c_int32),
        ("scale", c_float),
        ("rows", c_int32),
        ("feed", c_void_p),
        ("layer", c_int32),
        ("weighs_input", c_int32),
    )


class HeadLinearParams(Structure):
    _fields_ = (
        ("x", c_void_p),
        ("stacked", StackedMatrixParams),
        ("out", c_void_p),
        ("num_heads", c_int32),
        ("precision", c_int32),
    )


class ScaleByPositionParams(Structure):
    _fields_ = (
        ("x", c_void_p),
        ("width", c_int32),
        ("interval", c_int32),
        ("rate", c_float),
        ("offset", c_int32),
    )


class GateHeadsParams(Structure):
    _fields_ = (
        ("gate", c_void_p),
        ("x", c_void_p),
        ("width", c_int32),
        ("num_gates", c_int32),
        ("activation", c_int32),
        ("reserved", c_int32),
    )


class JoinParams(Structure):
    _fields_ = (
        ("first", c_void_p),
        ("second", c_void_p),
        ("out", c_void_p),
        ("widths", c_int32 * 2),
        ("groups", c_int32),
        ("rows", c_int32),
    )


class PartParams(Structure):
    _fields_ = (
        ("x", c_void_p),
        ("out", c_void_p),
        ("x_width", c_int32),
        ("begin", c_int32),
        ("width", c_int32),
        ("rows", c_int32),
    )


class AddScaledParams(Structure):
    _fields_ = (
        ("a", c_void_p),
        ("b", c_void_p),
        ("out", c_void_p),
        ("width", c_int32),
        ("scale", c_float),
        ("rows", c_int32),
        ("reserved", c_int32),
    )


class GatherParams(Structure):
    _fields_ = (("x", c_void_p), ("out", c_void_p), ("width", c_int32), ("reserved", c_int32))


class SigmoidParams(Structure):
    _fields_ = (("x", c_void_p), ("width", c_int32), ("rows", c_int32))


class SoftCapParams(Structure):
    _fields_ = (
        ("x", c_void_p),
        ("width", c_int32),
        ("rows", c_int32),
        ("cap", c_float),
        ("reserved", c_int32),
    )


class GatedParams(Structure):
    _fields_ = (
        ("gate", c_void_p),
        ("x", c_void_p),
        ("out", c_void_p),
        ("width", c_int32),
        ("activation", c_int32),
        ("rows", c_int32),
        ("reserved", c_int32),
    )


class SplitParams(Structure):
    _fields_ = (
        ("x", c_void_p),
        ("groups", c_int32),
        ("num_parts", c_int32),
        ("rows", c_int32),
        ("reserved", c_int32),
        ("widths", c_int32 * MAX_PARTS),
        ("outs", c_void_p * MAX_PARTS),
    )
