"""The token ids that contestants compute, random or read from a file."""

import random
from pathlib import Path

import numpy as np

from sharpi.errors import UsageError
from sharpi.gguf.reader import GgufFile
from sharpi.tokenizer.tokenizer import load_tokenizer


def token_ids(model: GgufFile, count: int, source: Path | None, seed: int = 1) -> list[int]:
    """Returns `count` token ids, random if `source` is None.

    `source`: a NumPy file of ids, or a text file to tokenize. Raises UsageError if the file has too
    few ids, or ids outside the model's vocabulary.
    """
    num_ids = model.tensors["token_embd.weight"].shape[0]
    if source is None:
        return random.Random(seed).choices(range(num_ids), k=count)
    ids = _read(model, source)[:count]
    if len(ids) < count:
        raise UsageError(f"{source}: {len(ids)} token ids, but {count} are to be computed")
    if min(ids) < 0 or max(ids) >= num_ids:
        raise UsageError(f"{source}: token ids must be 0..{num_ids - 1}, as the model has them")
    return ids


def _read(model: GgufFile, source: Path) -> list[int]:
    try:
        if source.suffix == ".npy":
            return [int(each) for each in np.load(source).ravel()]
        text = source.read_text()
        return load_tokenizer(model.metadata).encode(text, add_bos=True, parse_special=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"{source}: no token ids or text can be read from it ({error})") from None
