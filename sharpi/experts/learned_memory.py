"""Computes the memory of a learned policy's maps, which is needed in addition to the slots.

A map is the linear model by which a layer's experts are scored. The sizes are those of
kernels/cpu/experts/policy/learned.cpp and of the GPU's implementation.
"""

from sharpi.experts.policy_settings import PolicyKind
from sharpi.ops.slot_rules import whole

_FLOAT_BYTES, _LINE_FLOATS = 4, 16
_VECTORS = 4  # bias, scores, previous scores, errors
_OF_A_SPAN = 3  # of recent uses: counts, previous counts and weights


def learned_bytes(kind: PolicyKind, num_experts: int) -> int:
    """Returns the bytes of the maps of one layer for a policy; 0 if the policy does not learn."""
    if not kind.is_learned:
        return 0
    ahead = kind.prefetches
    has_few = ahead and num_experts <= whole("FewExperts")
    last = whole("MostLayers" if has_few else "LastLayers")
    hashed = num_hashed_rows(num_experts) if ahead else 0
    near = whole("NearLayers") + last
    within = near + whole("MoreLayersWithin") * has_few
    num_bytes = _map_bytes(within, num_experts, hashed, follows_text=ahead)
    if ahead:
        num_bytes += _map_bytes(near + last, num_experts, hashed, follows_text=True)
    return num_bytes


def num_hashed_rows(num_experts: int) -> int:
    """Returns the number of rows of a layer's hashed table for combinations of experts."""
    rows = whole("MostTableRows")
    while rows > 1 and rows * num_experts > whole("MostTableFloats"):
        rows //= 2
    return rows


def _map_bytes(num_sources: int, num_experts: int, num_hashed: int, *, follows_text: bool) -> int:
    stride = -(-num_experts // _LINE_FLOATS) * _LINE_FLOATS
    rows = num_sources * num_experts * (2 if follows_text else 1) + num_hashed
    rows += _VECTORS + _OF_A_SPAN * whole("Spans") * follows_text
    return _FLOAT_BYTES * (rows * stride + num_hashed)
