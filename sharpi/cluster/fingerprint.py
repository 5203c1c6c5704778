"""Fingerprints of a model file's tensors, by which ranks check that they have the same model.

A tensor's fingerprint covers its name, type, shape and a sample of its bytes. Hashing all bytes of
a file of hundreds of gigabytes would take too long.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.errors import ClusterError
from sharpi.gguf.reader import GgufFile, Tensor

_DIGEST_BYTES = 8
_PIECE_BYTES, _NUM_PIECES = 512, 8


class Fingerprint(Struct, frozen=True):
    """The digests of one rank's file: one for its header, and one for each tensor by name."""

    header: bytes
    tensors: dict[str, bytes]
    # Names of tensors in parts that are not on this machine.
    missing: frozenset[str] = frozenset()


def fingerprint(file: GgufFile) -> Fingerprint:
    """Returns the fingerprint of a file; reads its header and 4 KB of each tensor."""
    first = (tensor.offset for tensor in file.tensors.values() if tensor.part == 0)
    start = min(first, default=-1)  # a part without tensors is all header
    with file.parts[0].open("rb") as content:
        header = hashlib.blake2b(content.read(start), digest_size=_DIGEST_BYTES)
    here, missing = {}, set()
    for name, tensor in file.tensors.items():
        if tensor.part in file.missing_parts:
            missing.add(name)
        else:
            here[name] = _digest(tensor)
    return Fingerprint(header.digest(), here, frozenset(missing))


def require_same(fingerprints: Sequence[Fingerprint], hosts: Sequence[str]) -> None:
    """Raises ClusterError if two ranks have different models; names both and a tensor that differs.

    The fingerprints and host names are in order of ranks.
    """
    for before, rank in combinations(range(len(hosts)), 2):
        if (difference := _difference(fingerprints[before], fingerprints[rank])) is not None:
            raise ClusterError(
                f"rank {rank} on {hosts[rank]} has another model than rank {before} on"
                f" {hosts[before]}: {difference}"
            )


def _difference(first: Fingerprint, own: Fingerprint) -> str | None:
    names = first.tensors.keys() | own.tensors.keys()
    for name in sorted(names - first.missing - own.missing):
        if name not in own.tensors or name not in first.tensors:
            return f"only one of them has the tensor {name}"
        if own.tensors[name] != first.tensors[name]:
            return f"the tensor {name} differs"
    return None if own.header == first.header else "the settings in the header differ"


def _digest(tensor: Tensor) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    digest.update(f"{tensor.name} {tensor.shape} {tensor.num_bytes}".encode())
    for piece in _pieces(tensor.data_in_file.reshape(-1).view(np.uint8)):
        digest.update(piece.tobytes())
    return digest.digest()


def _pieces(data: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[np.uint8]]:
    """Yields eight pieces of 512 bytes, evenly spaced from the first to the last byte of `data`."""
    last = max(0, len(data) - _PIECE_BYTES)
    for number in range(_NUM_PIECES):
        start = last * number // (_NUM_PIECES - 1)
        yield data[start : start + _PIECE_BYTES]
