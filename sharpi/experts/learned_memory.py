"""Computes the memory of a learned policy's maps, which is needed in addition to the slots.

A map is the linear model by which a layer's experts are scored. The sizes match
kernels/cpu/experts/policy/learned.cpp and the GPU's implementation.
"""

from sharpi.experts.policy_settings import PolicyKind

_FLOAT_BYTES, _LINE_FLOATS = 4, 16
_NEAR, _LAST = 3, 4  # layers whose experts are inputs of a map: close ones, and the last ones
_FEW_EXPERTS, _MOST, _MORE_WITHIN = 64, 8, 7  # with few experts, maps have more input layers
_MOST_FLOATS, _MOST_ROWS = 1 << 18, 1 << 13  # limits of the rows for combinations of experts
_VECTORS = 4  # bias, scores, previous scores, errors
_RECENT = 6  # recent uses: counts, previous counts and weights, for two time spans


def learned_bytes(kind: PolicyKind, num_experts: int) -> int:
    """Returns the bytes of the maps of one layer for a policy; 0 if the policy does not learn."""
    if not kind.is_learned:
        return 0
    ahead = kind.decides_ahead
    has_few = ahead and num_experts <= _FEW_EXPERTS
    last = _MOST if has_few else _LAST
    hashed = num_hashed_rows(num_experts) if ahead else 0
    num_bytes = 0
    if kind.keeps_misses:
        num_within = _NEAR + last + _MORE_WITHIN * has_few
        num_bytes += _map_bytes(num_within, num_experts, hashed, follows_text=ahead)
    if kind is not PolicyKind.LEARNED_KEEP:
        num_ahead = _NEAR + last + last * ahead
        num_bytes += _map_bytes(num_ahead, num_experts, hashed, follows_text=ahead)
    return num_bytes


def num_hashed_rows(num_experts: int) -> int:
    """Returns the number of rows of a layer's hashed table for combinations of experts."""
    rows = _MOST_ROWS
    while rows > 1 and rows * num_experts > _MOST_FLOATS:
        rows //= 2
    return rows


def _map_bytes(num_sources: int, num_experts: int, num_hashed: int, *, follows_text: bool) -> int:
    stride = -(-num_experts // _LINE_FLOATS) * _LINE_FLOATS
    rows = num_sources * num_experts * (2 if follows_text else 1) + num_hashed
    rows += _VECTORS + _RECENT * follows_text
    return _FLOAT_BYTES * (rows * stride + num_hashed)
