"""Opens GGUF models: one file or a split set, mapped and never copied."""

import mmap
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType, TracebackType

import numpy as np
import numpy.typing as npt

from sharpi.errors import ModelFileError
from sharpi.gguf.header import Header, parse_header
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.quant_types import QuantType

_PART = re.compile(r"^(?P<stem>.*)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: `shape` slowest axis first, `data` its blocks, read-only uint8."""

    name: str
    quant_type: QuantType
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]
    part: int
    offset: int

    @property
    def num_values(self) -> int:
        """Values, not bytes."""
        return prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Encoded size."""
        return int(self.data.nbytes)


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A model's file, or all files of a split one; a context manager."""

    path: Path
    version: int
    metadata: Metadata
    tensors: Mapping[str, Tensor]
    parts: tuple[Path, ...]

    @property
    def num_bytes(self) -> int:
        """Size of all parts on disk."""
        return sum(part.stat().st_size for part in self.parts)

    def close(self) -> None:
        """Nothing to do: the mapping ends with the last tensor that looks into it."""

    def __enter__(self) -> "GgufFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_gguf(path: Path) -> GgufFile:
    """Maps a model; any part of a split set opens the whole set.

    Raises ModelFileError, which names the file and the fault.
    """
    path = Path(path)
    parts = _parts(path)
    tensors: dict[str, Tensor] = {}
    headers = []
    for index, part in enumerate(parts):
        header, data = _map(part)
        _check_part(part, header, index, len(parts))
        headers.append(header)
        for info in header.tensors:
            if info.name in tensors:
                raise ModelFileError(f"{part}: tensor {info.name} is in another part already")
            blocks = data[info.offset : info.offset + info.num_bytes]
            tensors[info.name] = Tensor(
                info.name, info.quant_type, info.shape, blocks, index, info.offset
            )
    _check_total(parts[0], headers[0], len(tensors))
    return GgufFile(
        path, headers[0].version, headers[0].metadata, MappingProxyType(tensors), tuple(parts)
    )


def _map(path: Path) -> tuple[Header, npt.NDArray[np.uint8]]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                raise ModelFileError(f"{path}: the file is empty")
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ModelFileError(f"{path}: this is a folder, name a .gguf file in it") from None
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise ModelFileError(f"{path}: not a regular file") from None
    return parse_header(path, memoryview(mapping)), np.frombuffer(mapping, np.uint8)


def _parts(path: Path) -> list[Path]:
    """The files of the set that `path` belongs to, in order."""
    match = _PART.match(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    if not 0 < int(match["index"]) <= count:
        raise ModelFileError(f"{path}: part {match['index']} of {count} cannot be")
    names = [f"{match['stem']}-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1)]
    parts = [path.with_name(name) for name in names]
    for part in parts:
        if path.exists() and not part.exists():
            raise ModelFileError(f"{part}: no such file; the model is split into {count} parts")
    return parts


def _check_part(path: Path, header: Header, index: int, count: int) -> None:
    """The file's own idea of its place must agree with its name."""
    if count == 1 and "split.count" not in header.metadata:
        return
    stored_count = header.metadata.get_int("split.count", count)
    stored_index = header.metadata.get_int("split.no", index)
    if count == 1 and stored_count > 1:
        raise ModelFileError(
            f"{path}: part {stored_index + 1} of {stored_count}, but the name does not say so;"
            f" call it NAME-{stored_index + 1:05d}-of-{stored_count:05d}.gguf beside the others"
        )
    if (stored_index, stored_count) != (index, count):
        stored = f"{stored_index + 1} of {stored_count}"
        raise ModelFileError(f"{path}: says it is part {stored}, not {index + 1} of {count}")


def _check_total(path: Path, header: Header, found: int) -> None:
    expected = header.metadata.get_int("split.tensors.count", found)
    if expected != found:
        raise ModelFileError(f"{path}: the parts hold {found} tensors, not {expected}")
