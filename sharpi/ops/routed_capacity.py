"""The limited number of buffer rows for a batch's routed tokens, and of experts per group.

Both depend on the capacity factor: the share of tokens * experts per token that has a row.
"""

import math

_SPARE = 2  # evenly used experts of a group fill 1 / _SPARE of the rows
LEAST_TOKENS = 9  # the most tokens of a batch in which every routed token has a row


def rows_of_batch(factor: float, tokens: int, used: int) -> int:
    """Returns the number of buffer rows for `tokens` tokens with `used` experts per token.

    It is about `factor` * tokens * used. Batches of at most LEAST_TOKENS tokens have all rows.
    """
    return used * min(tokens, max(LEAST_TOKENS, math.ceil(tokens * factor)))


def experts_at_once(factor: float, num_experts: int) -> int:
    """Returns the number of experts in a group, which are computed together in a batch's rows."""
    return max(1, int(num_experts * factor / _SPARE))
