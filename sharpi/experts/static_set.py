"""Parses the list of expert ids that a user gives for a fixed set of resident experts."""

import re

from sharpi.errors import UsageError


def parse_ids(text: str, num_experts: int) -> tuple[int, ...]:
    """Returns the ids in a text such as `1,2,3` or `0-7`, without repeats.

    Ignores empty parts. Raises UsageError for other texts and for ids from `num_experts` on.
    """
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
