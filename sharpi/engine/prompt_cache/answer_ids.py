"""AnswerIds: the tokens that a model chose for its answers, found again by the answers' text.

A text has many tokenizations, and pages are found by tokens. So a client that sends a conversation
back as text only finds its pages if the answers get the tokens again that the model chose.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import numpy as np

from sharpi.engine.prompt_cache.checksum import DIGEST_BYTES
from sharpi.system.files import write_atomically


def answer_file(text: str) -> str:
    """Returns the name of the file with an answer's tokens."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES)
    return f"answer-{digest.hexdigest()}.ids"


class AnswerIds:
    """The tokens of answers in one model's folder; I/O errors are ignored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, text: str, ids: Sequence[int]) -> None:
        """Writes the tokens of an answer to a file that `find` reads."""
        data = np.asarray(ids, np.int32).tobytes()
        with suppress(OSError):
            write_atomically(self._folder / answer_file(text), data + _digest(data))

    def find(self, text: str) -> list[int]:
        """Returns the tokens of an answer; an empty list if they were not stored."""
        path = self._folder / answer_file(text)
        with suppress(OSError, ValueError):
            content = path.read_bytes()
            data, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
            if _digest(data) == digest:
                os.utime(path)
                ids: list[int] = np.frombuffer(data, np.int32).tolist()
                return ids
        return []


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
