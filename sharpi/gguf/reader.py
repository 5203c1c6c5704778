"""Opens GGUF models, one file or all parts of a split model, as read-only memory maps."""

import contextlib
import mmap
import os
import re
import stat
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from sharpi.errors import did_you_mean
from sharpi.gguf.cursor import MAX_HEAD_BYTES, file_error
from sharpi.gguf.header import Header, TensorInfo, parse_header
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.quant_types import QuantType
from sharpi.system.process import Closing

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


class Tensor(Struct, frozen=True, eq=False):
    """One tensor of a model."""

    name: str
    quant_type: QuantType
    shape: tuple[int, ...]  # slowest axis first: (rows, columns) or (experts, rows, columns)
    # Quant blocks, (bytes,): a read-only view into the mapped file, or into a copy that is filled
    # later.
    data: npt.NDArray[np.uint8]
    part: int  # index of the tensor's file
    offset: int  # bytes from the start of that file
    mapped_data: npt.NDArray[np.uint8] | None = None  # the view into the file, if `data` is a copy

    @property
    def info(self) -> TensorInfo:
        """The tensor's name, type, shape, offset and size, without its data."""
        return TensorInfo(self.name, self.quant_type, self.shape, self.offset, self.num_bytes)

    @property
    def num_values(self) -> int:
        """The number of values, the product of the shape."""
        return prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """The size of the quant blocks in bytes."""
        return int(self.data.nbytes)

    @property
    def data_in_file(self) -> npt.NDArray[np.uint8]:
        """The quant blocks in the mapped file, even if `data` is a copy that is not filled yet."""
        return self.data if self.mapped_data is None else self.mapped_data


class GgufFile(Closing, Struct, frozen=True, eq=False):
    """An open GGUF file, or all parts of a split model; a context manager that closes it."""

    path: Path
    version: int
    metadata: Metadata  # metadata of the first part
    tensors: dict[str, Tensor]
    parts: tuple[Path, ...]
    num_bytes: int  # the size of all parts on disk
    missing_parts: frozenset[int] = frozenset()  # indices of parts that only other machines have

    @property
    def openable_parts(self) -> tuple[Path, ...]:
        """The paths of all parts; the first part's path stands for each missing part."""
        parts = enumerate(self.parts)
        return tuple(
            self.parts[0] if index in self.missing_parts else path for index, path in parts
        )

    def infos(self) -> dict[int, list[TensorInfo]]:
        """Returns the infos of the tensors in each part that this machine has, by part index."""
        infos: dict[int, list[TensorInfo]] = {
            index: [] for index in range(len(self.parts)) if index not in self.missing_parts
        }
        for tensor in self.tensors.values():
            if tensor.part in infos:
                infos[tensor.part].append(tensor.info)
        return infos

    def with_missing_parts(self, infos: Mapping[int, Sequence[TensorInfo]]) -> "GgufFile":
        """Returns the file with the tensors of its missing parts added.

        `infos`: the tensors by part index. Their data are zeros that take no memory, and must not
        be used.
        """
        added = {
            info.name: Tensor(
                info.name, info.quant_type, info.shape, _nothing(info.num_bytes), part, info.offset
            )
            for part, own in infos.items()
            for info in own
        }
        return self.with_data(added)

    def with_data(self, copies: Mapping[str, Tensor]) -> "GgufFile":
        """Returns the file with the tensors `copies`, by name, in place of its tensors.

        All other tensors are shared with this object. `close` of one object does not affect the
        other.
        """
        return replace(self, tensors=self.tensors | dict(copies))

    def with_tensors_of(self, other: "GgufFile", prefix: str) -> "GgufFile":
        """Returns the file with those tensors of `other` whose names begin with `prefix`.

        They replace this file's tensors of the same names. The parts of `other` become further
        parts.
        """
        first = len(self.parts)
        added = {
            name: replace(tensor, part=first + tensor.part)
            for name, tensor in other.tensors.items()
            if name.startswith(prefix)
        }
        joined = self.with_data(added)
        num_bytes = self.num_bytes + other.num_bytes
        return replace(joined, parts=(*self.parts, *other.parts), num_bytes=num_bytes)

    def with_all_of(self, other: "GgufFile", prefix: str) -> "GgufFile":
        """Returns the file with the tensors and parts of `other`, under names with `prefix`."""
        renamed = {
            f"{prefix}{name}": replace(tensor, name=f"{prefix}{name}")
            for name, tensor in other.tensors.items()
        }
        return self.with_tensors_of(replace(other, tensors=renamed), prefix)

    def close(self) -> None:
        """Drops the references to the tensors.

        A file is unmapped with the last view into it, so views that are still in use stay valid.
        The metadata has a separate mapping and stays valid.
        """
        self.tensors.clear()


def open_gguf(path: Path, *, allows_missing_parts: bool = False) -> GgufFile:
    """Opens and maps a model's file; if it is a part of a split model, maps all parts.

    With `allows_missing_parts`, parts other than the first may be missing, since other machines of
    a cluster have them. Raises ModelFileError, which names the file and what is wrong.
    """
    path = Path(path)
    opened = _map(path)
    parts = _split_parts(path, opened[0].metadata, allows_missing=allows_missing_parts)
    missing = frozenset(
        i for i, part in enumerate(parts) if allows_missing_parts and not part.exists()
    )
    headers, tensors, num_bytes = list[Header](), dict[str, Tensor](), 0
    for index, part in enumerate(parts):
        if index in missing:
            continue
        header, data = opened if part == path else _map(part)
        _check_part(part, header.metadata, index, len(parts))
        _add_tensors(tensors, part, index, header, data)
        headers.append(header)
        num_bytes += len(data)
    first, total = headers[0], len(tensors)
    expected = first.metadata.get_int("split.tensors.count", total)
    if not missing and expected != total:
        raise file_error(parts[0], f"the parts hold {total} tensors, not {expected}")
    return GgufFile(path, first.version, first.metadata, tensors, tuple(parts), num_bytes, missing)


def _split_parts(path: Path, metadata: Metadata, *, allows_missing: bool) -> list[Path]:
    """Returns the paths of all parts of `path`'s model, in order; [path] if it is not split."""
    match = _PART.fullmatch(path.name)
    if match is None or (metadata.get_int("split.count", 1) or 1) == 1:
        return [path]
    number, count = int(match["number"]), int(match["count"])
    if not 0 < number <= count:
        raise file_error(path, f"part {number} of {count} is impossible; was the file renamed?")
    parts = [_part_path(path, match["stem"], i, count) for i in range(1, count + 1)]
    needed = "every machine needs the first part"
    if not allows_missing:
        needed = f"all {count} parts must be in one folder"
    for part in parts[:1] if allows_missing else parts:
        if not os.path.exists(part):
            raise file_error(part, f"no such file; {needed}")
    return parts


def part_number(path: Path) -> int | None:
    """Returns the part number, from 1, in a file name of a split model; None for other names."""
    match = _PART.fullmatch(path.name)
    return None if match is None else int(match["number"])


def _part_path(beside: Path, stem: str, number: int, count: int) -> Path:
    return beside.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf")


def _check_part(path: Path, metadata: Metadata, index: int, count: int) -> None:
    """Checks that `split.no` (from 0) and `split.count` agree with the file's name."""
    stored_count = metadata.get_int("split.count", 1) or 1
    number = metadata.get_int("split.no", 0) + 1
    if (number, stored_count) == (index + 1, count):
        return
    wrong = f"though its name says {index + 1} of {count}"
    if count == 1:
        wanted = _part_path(path, path.stem, number, stored_count).name
        wrong = f"rename it to {wanted}, and put the other parts beside it"
    between = ";" if count == 1 else ","
    raise file_error(path, f"holds part {number} of {stored_count}{between} {wrong}")


def _nothing(num_bytes: int) -> npt.NDArray[np.uint8]:
    """Returns zeros of shape (num_bytes,) that take no memory."""
    if not num_bytes:
        return np.zeros(0, np.uint8)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, num_bytes, flags=flags, prot=mmap.PROT_READ), np.uint8)


def _add_tensors(
    tensors: dict[str, Tensor],
    path: Path,
    part: int,
    header: Header,
    data: npt.NDArray[np.uint8],
) -> None:
    for info in header.tensors:
        if info.name in tensors:
            raise file_error(path, f"tensor {info.name} is also in another part")
        blocks = data[info.offset : info.end]
        tensors[info.name] = Tensor(
            info.name, info.quant_type, info.shape, blocks, part, info.offset
        )


def _map(path: Path) -> tuple[Header, npt.NDArray[np.uint8]]:
    """Maps a file; returns its parsed header and the whole file as bytes."""
    try:
        head, whole = _mappings(path)
    except FileNotFoundError:
        raise file_error(path, f"no such file{_near_names(path)}") from None
    except OSError as error:
        raise file_error(path, f"cannot be read ({error.strerror})") from None
    except ValueError as error:  # a NUL in the path
        raise file_error(path, f"cannot be read ({error})") from None
    return parse_header(path, memoryview(head), len(whole)), np.frombuffer(whole, np.uint8)


def _near_names(path: Path) -> str:
    """Returns "; did you mean ...?" with similar names in the same folder; empty without any."""
    try:
        files = [each for each in path.parent.iterdir() if each.suffix.lower() == ".gguf"]
    except (OSError, ValueError):  # no such folder, or a NUL in the path
        return ""
    return did_you_mean(path.name, [each.name for each in files if part_number(each) is None], 2)


def _mappings(path: Path) -> tuple[mmap.mmap, mmap.mmap]:
    """Maps a file's head and the whole file apart, so that the head can stay mapped longer."""
    status = path.stat()  # checked before opening, because a pipe without a writer would block
    if stat.S_ISDIR(status.st_mode):
        raise file_error(path, "this is a folder; give the path of the .gguf file in it")
    if not stat.S_ISREG(status.st_mode):
        raise file_error(path, "not a regular file, so it cannot be mapped")
    if status.st_size == 0:
        raise file_error(path, "the file is empty")
    with path.open("rb") as file:
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _prefer_huge_pages(whole)
        head_bytes = min(len(whole), MAX_HEAD_BYTES)
        return mmap.mmap(file.fileno(), head_bytes, access=mmap.ACCESS_READ), whole


def _prefer_huge_pages(whole: mmap.mmap) -> None:
    """Asks for 2 MiB pages, which save TLB misses; Linux 6.16 caches ext4 files in such."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            whole.madvise(mmap.MADV_HUGEPAGE)
