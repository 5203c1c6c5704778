"""Links of tokens: a digest of all tokens of a text up to some position, page by page."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS

LINK_BYTES = 16
ROOT = bytes(LINK_BYTES)  # before the first token


def link_after(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Returns the link after `tokens`, a digest of them and of all tokens before them.

    `parent` is the link before `tokens`.
    """
    ids = np.asarray(tokens, np.int32).tobytes()
    return blake2b(parent + ids, digest_size=LINK_BYTES).digest()


def page_links(tokens: Sequence[int]) -> list[bytes]:
    """Returns the link before each page of the tokens, and the one after the last whole page.

    A link is a digest of all tokens up to a position.
    """
    links = [ROOT]
    for start in range(0, len(tokens) - PAGE_POSITIONS + 1, PAGE_POSITIONS):
        links.append(link_after(links[-1], tokens[start : start + PAGE_POSITIONS]))
    return links
