"""Walks through constraints without a model: given texts, and random choices."""

import random
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sharpi.constraints.constraint import Constraint, TokenMask, allows
from sharpi.tokenizer.tokenizer import Tokenizer

CLOSERS = b'"}],:'


def allowed_ids(mask: TokenMask | None, tokenizer: Tokenizer) -> set[int]:
    return set(sorted_ids(mask, tokenizer).tolist())


def sorted_ids(mask: TokenMask | None, tokenizer: Tokenizer) -> NDArray[np.intp]:
    """Returns the ids of the tokens that a mask allows."""
    if mask is None:
        return np.arange(tokenizer.vocab_size)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: tokenizer.vocab_size]
    return np.flatnonzero(bits)


@cache
def closers(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Returns, for each token, whether it begins with one of CLOSERS."""
    beginnings = (tokenizer.token_bytes(token)[:1] for token in range(tokenizer.vocab_size))
    return np.array([bool(first) and first in CLOSERS for first in beginnings])


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
    """Returns whether the end tokens are allowed; they are so together or not at all."""
    mask = constraint.allowed()
    ends = [mask is None or allows(mask, token) for token in tokenizer.end_ids]
    assert any(ends) == all(ends)
    return any(ends)


def random_answer(
    constraint: Constraint, tokenizer: Tokenizer, seed: int, max_tokens: int = 2000
) -> str:
    """Returns a random walk to an end token; where it can, half its steps close something open."""
    chance, text = random.Random(seed), b""
    for _ in range(max_tokens):
        allowed = sorted_ids(constraint.allowed(), tokenizer)
        closing = allowed[closers(tokenizer)[allowed]]
        closes = len(closing) and chance.random() < 0.5
        token = int(chance.choice(closing if closes else allowed))
        if token in tokenizer.end_ids:
            return text.decode()
        constraint.accept(token)
        text += tokenizer.token_bytes(token)
    raise AssertionError(f"no end after {text[-200:]!r}")
