"""The rows that a capacity factor leaves for a batch's routed tokens, and the experts per group."""

import math

_SPARE = 2  # evenly used experts of a group fill 1 / _SPARE of the rows
LEAST_TOKENS = 9  # the most tokens of a batch in which every routed token has a row


def rows_of_batch(factor: float, tokens: int, used: int) -> int:
    """Returns the rows for a batch of `tokens` that use `used` experts each."""
    return used * min(tokens, max(LEAST_TOKENS, math.ceil(tokens * factor)))


def experts_at_once(factor: float, num_experts: int) -> int:
    """Returns the size of a group of experts; a group's routed tokens share a batch's rows."""
    return max(1, int(num_experts * factor / _SPARE))
