"""The C structs of kernels/cpu/operations/recurrent.h, field by field (see abi.py)."""

from ctypes import Structure, c_float, c_int32, c_int64, c_void_p


class ConvolutionParams(Structure):
    _fields_ = (
        ("x", c_void_p),
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("out", c_void_p),
        ("state_offset", c_int64),
        ("channels", c_int32),
        ("kernel", c_int32),
        ("silu", c_int32),
        ("reserved", c_int32),
    )


class DeltaNetParams(Structure):
    _fields_ = (
        ("qkv", c_void_p),
        ("beta", c_void_p),
        ("alpha", c_void_p),
        ("a", c_void_p),
        ("dt_bias", c_void_p),
        ("out", c_void_p),
        ("state_offset", c_int64),
        ("key_heads", c_int32),
        ("value_heads", c_int32),
        ("key_dim", c_int32),
        ("value_dim", c_int32),
        ("tiled", c_int32),
        ("epsilon", c_float),
    )


class Mamba2Params(Structure):
    _fields_ = (
        ("xbc", c_void_p),
        ("dt", c_void_p),
        ("a", c_void_p),
        ("d", c_void_p),
        ("dt_bias", c_void_p),
        ("out", c_void_p),
        ("state_offset", c_int64),
        ("heads", c_int32),
        ("groups", c_int32),
        ("head_dim", c_int32),
        ("state_size", c_int32),
    )
