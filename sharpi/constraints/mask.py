"""Token masks: one bit per token, 32 tokens to a uint32 word."""

from collections.abc import Iterable

import numpy as np

from sharpi.constraints.constraint import TokenMask


def empty_mask(num_tokens: int) -> TokenMask:
    """Returns a mask that allows no token: uint32 of shape (ceil(num_tokens / 32),)."""
    return np.zeros((num_tokens + 31) // 32, np.uint32)


def mask_of(ids: Iterable[int], num_tokens: int) -> TokenMask:
    """Returns a mask that allows exactly the tokens `ids`."""
    mask = empty_mask(num_tokens)
    for token in ids:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


def allows(mask: TokenMask, token: int) -> bool:
    """Returns whether the token's bit is set."""
    return bool(mask[token // 32] >> np.uint32(token % 32) & np.uint32(1))


def all_but(ids: Iterable[int], num_tokens: int) -> TokenMask:
    """Returns a mask that allows all tokens except `ids`."""
    return ~mask_of(ids, num_tokens)
