"""Finds the parts of a split model, named and numbered as llama-gguf-split does."""

import os
import re
from pathlib import Path

from sharpi.gguf.cursor import file_error
from sharpi.gguf.metadata import Metadata

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def split_parts(path: Path, metadata: Metadata, *, allows_missing: bool = False) -> list[Path]:
    """Returns the paths of all parts of the model that `path` belongs to, in order.

    Returns [path] if its metadata do not say that it is split, whatever its name. Raises
    ModelFileError, which names the first missing part. With `allows_missing`, only the first part
    must exist, because it holds the metadata.
    """
    match = _PART.fullmatch(path.name)
    if match is None or (metadata.get_int("split.count", 1) or 1) == 1:
        return [path]
    number, count = int(match["number"]), int(match["count"])
    if not 0 < number <= count:
        raise file_error(path, f"part {number} of {count} is impossible; was the file renamed?")
    parts = [part_path(path, match["stem"], i, count) for i in range(1, count + 1)]
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


def part_path(beside: Path, stem: str, number: int, count: int) -> Path:
    """Returns the path of part `number` of `count`, counted from 1, in the folder of `beside`."""
    return beside.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf")


def check_part(path: Path, metadata: Metadata, index: int, count: int) -> None:
    """Checks that `split.no` (from 0) and `split.count` agree with the file's name.

    Raises ModelFileError if they do not.
    """
    stored_count = metadata.get_int("split.count", 1) or 1
    stored_index = metadata.get_int("split.no", 0)
    if (stored_index, stored_count) == (index, count):
        return
    if count == 1:
        wanted = part_path(path, path.stem, stored_index + 1, stored_count).name
        raise file_error(
            path,
            f"holds part {stored_index + 1} of {stored_count}; rename it to {wanted},"
            " and put the other parts beside it",
        )
    raise file_error(
        path,
        f"holds part {stored_index + 1} of {stored_count}, though its name says"
        f" {index + 1} of {count}",
    )


def check_total(path: Path, metadata: Metadata, num_tensors: int) -> None:
    """Checks the number of tensors against the first part's `split.tensors.count`.

    Raises ModelFileError if they differ.
    """
    expected = metadata.get_int("split.tensors.count", num_tensors)
    if expected != num_tensors:
        raise file_error(path, f"the parts hold {num_tensors} tensors, not {expected}")
