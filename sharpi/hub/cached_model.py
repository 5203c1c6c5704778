"""A model in the cache: its files, their sizes, and whether all of them exist."""

import os
from pathlib import Path

from msgspec import Struct

from sharpi.hub.model_name import ModelName
from sharpi.hub.variants import Variant


class CachedFile(Struct, frozen=True):
    """One file of a repository in the cache."""

    path: str  # path in the repository
    location: Path  # a link to the blob, or the file itself if it is partial
    size: int  # in bytes
    modified: float  # seconds since 1970
    is_partial: bool = False


class CachedModel(Struct, frozen=True):
    """One model of one revision in the cache, complete or partly downloaded."""

    name: ModelName
    variant: Variant
    files: tuple[CachedFile, ...]  # the parts, in order

    @property
    def is_complete(self) -> bool:
        """True if all parts of the model exist and none is a partial download."""
        return not self.variant.missing_parts and not any(file.is_partial for file in self.files)

    @property
    def size(self) -> int:
        """The total size in bytes of the model's files in the cache."""
        return sum(file.size for file in self.files)

    @property
    def modified(self) -> float:
        """The time when the newest file was written, in seconds since 1970."""
        return max(file.modified for file in self.files)

    @property
    def start(self) -> Path:
        """The path of the file to open: the only file, or the first part."""
        return self.files[0].location


def cached_files(folder: Path, is_partial: bool = False) -> list[CachedFile]:
    """Returns all files in `folder` and its subfolders, except broken links."""
    found = []
    for path in files_below(folder):
        try:
            status = path.stat()
        except OSError:
            continue
        relative = path.relative_to(folder).as_posix()
        found.append(CachedFile(relative, path, status.st_size, status.st_mtime, is_partial))
    return found


def files_below(folder: Path) -> list[Path]:
    """Returns the sorted paths of all files in `folder` and its subfolders."""
    return sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)


def entries(folder: Path) -> list["os.DirEntry[str]"]:
    """Returns the entries of `folder` sorted by name; empty if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []
