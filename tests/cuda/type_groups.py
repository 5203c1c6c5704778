"""Quant types whose kernels are built for the CPU in one library, as tests run them all.

Such a library parses its headers once, and is linked once.
"""

from sharpi.device.gpu_kernels import defines
from sharpi.device.launch import Kernel

FLOATS = ("f32", "f16", "bf16")
GROUPS = (
    FLOATS,
    ("q4_k", "q5_k", "q6_k", "q8_0"),  # those of most models
    ("q4_0", "q4_1", "q5_0", "q5_1"),
    ("q2_k", "q3_k", "iq4_nl", "iq4_xs"),
    ("mxfp4", "nvfp4", "tq1_0", "tq2_0"),
    ("q1_0", "q2_0", "iq1_s", "iq1_m"),
    ("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"),
)
# Kernels that tests run with every type; a library for each type serves the others.
FILES = {
    "dequantise",
    "embed",
    "experts_down",
    "experts_gate_up",
    "experts_grouped_gate_up",
    "experts_grouped_product",
    "matvec",
    "slot_route",
}


def build_defines(kernel: Kernel) -> tuple[str, ...]:
    """Returns the macros of the library that has a kernel for its type or for the type's group."""
    if kernel.file not in FILES or kernel.quant_type is None:
        return defines(kernel.quant_type, kernel.size)
    group = next(group for group in GROUPS if kernel.quant_type in group)
    types = " ".join(f"M({name.upper()}, {name})" for name in group)
    quantised, floats = ("", types) if group is FLOATS else (types, "")
    return f"QUANTISED_TYPES(M)={quantised}", f"FLOAT_TYPES(M)={floats}"
