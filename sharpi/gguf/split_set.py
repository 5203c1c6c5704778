"""The files of a model split over several, as llama-gguf-split names and numbers them."""

import os
import re
from pathlib import Path

from sharpi.gguf.file_error import file_error
from sharpi.gguf.metadata import Metadata

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def split_parts(path: Path) -> list[Path]:
    """The files of the set that `path` belongs to, in order; only itself if it is not split.

    Raises ModelFileError naming the first part that is missing.
    """
    match = _PART.fullmatch(path.name)
    if match is None or not os.path.exists(path):
        return [path]
    number, count = int(match["number"]), int(match["count"])
    if not 0 < number <= count:
        raise file_error(path, f"part {number} of {count} cannot be; was the file renamed?")
    parts = [part_path(path, match["stem"], i, count) for i in range(1, count + 1)]
    for part in parts:
        if not os.path.exists(part):
            raise file_error(part, f"no such file; all {count} parts must lie in one folder")
    return parts


def part_path(beside: Path, stem: str, number: int, count: int) -> Path:
    """The name of part `number` of `count`, both from 1."""
    return beside.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf")


def check_part(path: Path, metadata: Metadata, index: int, count: int) -> None:
    """The file's own idea of its place (`split.no`, from 0) must agree with its name."""
    stored_count = metadata.get_int("split.count", 1) or 1
    stored_index = metadata.get_int("split.no", 0)
    if (stored_index, stored_count) == (index, count):
        return
    if count == 1:
        wanted = part_path(path, path.stem, stored_index + 1, stored_count).name
        raise file_error(
            path,
            f"holds part {stored_index + 1} of {stored_count}; call it {wanted},"
            " and put the other parts beside it",
        )
    raise file_error(
        path,
        f"holds part {stored_index + 1} of {stored_count}, though its name says"
        f" {index + 1} of {count}",
    )


def check_total(path: Path, metadata: Metadata, num_tensors: int) -> None:
    """The set must hold as many tensors as its first part says (`split.tensors.count`)."""
    expected = metadata.get_int("split.tensors.count", num_tensors)
    if expected != num_tensors:
        raise file_error(path, f"the parts hold {num_tensors} tensors, not {expected}")
