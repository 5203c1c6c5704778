"""The experts of a fixed set: a list of ids from the user, or the most used ones."""

import re

import numpy as np
from numpy.typing import NDArray

from sharpi.errors import UsageError


def parse_ids(text: str, num_experts: int) -> tuple[int, ...]:
    """Parses ids as in `1,2,,3` or `0-7` and drops repeats; raises UsageError."""
    ids = dict.fromkeys(
        expert for part in text.split(",") if part.strip() for expert in _range(part.strip(), text)
    )
    if not ids:
        raise UsageError(f"'{text}' names no expert; write ids as in 1,2,5 or 0-7")
    if max(ids) >= num_experts:
        raise UsageError(f"'{text}' names expert {max(ids)}; the last one is {num_experts - 1}")
    return tuple(ids)


def _range(part: str, text: str) -> range:
    match = re.fullmatch(r"(\d{1,6})(?:\s*-\s*(\d{1,6}))?", part)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise UsageError(
            f"'{part}' in '{text}' is neither an expert id nor a range; write 3 or 0-7"
        )
    return range(int(match[1]), int(match[2] or match[1]) + 1)


def most_used(counts: NDArray[np.integer] | NDArray[np.floating]) -> tuple[tuple[int, ...], ...]:
    """Returns each layer's ids by falling count, lower ids first; counts (layers, experts)."""
    order = np.argsort(-counts, axis=1, kind="stable")
    return tuple(tuple(row) for row in order.tolist())
