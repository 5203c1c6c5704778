"""Opens GGUF models, one file or all parts of a split model, as read-only memory maps."""

import contextlib
import mmap
import stat
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from sharpi.errors import close_matches, did_you_mean
from sharpi.gguf.cursor import MAX_HEAD_BYTES, file_error
from sharpi.gguf.header import Header, TensorInfo, parse_header
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.split_set import check_part, check_total, part_number, split_parts
from sharpi.system.process import Closing


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
    tensors: Mapping[str, Tensor]
    parts: tuple[Path, ...]
    num_bytes: int  # the size of all parts on disk
    _tensors: dict[str, Tensor]
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
        tensors = self._tensors | dict(copies)
        return replace(self, tensors=MappingProxyType(tensors), _tensors=tensors)

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
        """Returns the file with all tensors of `other`, with `prefix` added to their names.

        The parts of `other` become further parts.
        """
        renamed = {
            f"{prefix}{name}": replace(tensor, name=f"{prefix}{name}")
            for name, tensor in other.tensors.items()
        }
        named = replace(other, tensors=MappingProxyType(renamed), _tensors=renamed)
        return self.with_tensors_of(named, prefix)

    def close(self) -> None:
        """Drops the references to the tensors.

        A file is unmapped with the last view into it, so views that are still in use stay valid.
        The metadata has a separate mapping and stays valid.
        """
        self._tensors.clear()


def open_gguf(path: Path, *, allows_missing_parts: bool = False) -> GgufFile:
    """Opens and maps a model's file; if it is a part of a split model, maps all parts.

    With `allows_missing_parts`, parts other than the first may be missing, since other machines of
    a cluster have them. Raises ModelFileError, which names the file and what is wrong.
    """
    path = Path(path)
    opened = _map(path)
    parts = split_parts(path, opened[0].metadata, allows_missing=allows_missing_parts)
    missing_parts = frozenset(
        i for i, part in enumerate(parts) if allows_missing_parts and not part.exists()
    )
    headers: list[Header] = []
    tensors: dict[str, Tensor] = {}
    num_bytes = 0
    for index, part in enumerate(parts):
        if index in missing_parts:
            continue
        header, data = opened if part == path else _map(part)
        check_part(part, header.metadata, index, len(parts))
        _add_tensors(tensors, part, index, header, data)
        headers.append(header)
        num_bytes += len(data)
    first = headers[0]
    if not missing_parts:
        check_total(parts[0], first.metadata, len(tensors))
    read_only = MappingProxyType(tensors)
    return GgufFile(
        path, first.version, first.metadata, read_only, tuple(parts), num_bytes, tensors,
        missing_parts,
    )  # fmt: skip


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
    names = [each.name for each in files if part_number(each) is None]
    meant = close_matches(path.name, names, most=2)
    return did_you_mean(path.name, [str(path.parent / name) for name in meant])


def _mappings(path: Path) -> tuple[mmap.mmap, mmap.mmap]:
    """Returns separate mappings of a file's head and of the entire file.

    So the head can stay mapped when the file is unmapped.
    """
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
    """Asks the kernel to cache the file in 2 MiB pages, which saves TLB misses on random experts.

    Linux 6.16 does so on ext4 for pages that are not cached yet; elsewhere the request has no
    effect.
    """
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            whole.madvise(mmap.MADV_HUGEPAGE)
