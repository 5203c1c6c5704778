"""Walks through constraints without a model: given texts, and random choices."""

import random
from functools import cache

import numpy as np

from sharpi.constraints.constraint import Constraint, TokenMask
from sharpi.constraints.mask import allows
from sharpi.tokenizer.tokenizer import Tokenizer

CLOSERS = b'"}],:'


def allowed_ids(mask: TokenMask | None, tokenizer: Tokenizer) -> set[int]:
    if mask is None:
        return set(range(tokenizer.vocab_size))
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: tokenizer.vocab_size]
    return set(np.flatnonzero(bits).tolist())


@cache
def closing_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Returns the tokens that begin with one of CLOSERS."""
    beginnings = (
        (token, tokenizer.token_bytes(token)[:1]) for token in range(tokenizer.vocab_size)
    )
    return frozenset(token for token, first in beginnings if first and first in CLOSERS)


def follows(constraint: Constraint, tokenizer: Tokenizer, text: str) -> bool:
    """Returns whether the constraint allows the text, and advances it."""
    return all(goes_on(constraint, token) for token in tokenizer.encode_inside(text))


def goes_on(constraint: Constraint, token: int) -> bool:
    """Returns whether a token is allowed, and advances the constraint by it."""
    mask = constraint.allowed()
    if mask is not None and not allows(mask, token):
        return False
    constraint.accept(token)
    return True


def may_end(constraint: Constraint, tokenizer: Tokenizer) -> bool:
    ends = allowed_ids(constraint.allowed(), tokenizer) & tokenizer.end_ids
    assert ends in (set(), tokenizer.end_ids)
    return bool(ends)


def random_answer(
    constraint: Constraint, tokenizer: Tokenizer, seed: int, max_tokens: int = 2000
) -> str:
    """Returns a random walk to an end token; where it can, half its steps close something open."""
    chance, text, closers = random.Random(seed), b"", closing_ids(tokenizer)
    for _ in range(max_tokens):
        allowed = allowed_ids(constraint.allowed(), tokenizer)
        closing = sorted(allowed & closers)
        token = chance.choice(closing if closing and chance.random() < 0.5 else sorted(allowed))
        if token in tokenizer.end_ids:
            return text.decode()
        constraint.accept(token)
        text += tokenizer.token_bytes(token)
    raise AssertionError(f"no end after {text[-200:]!r}")
