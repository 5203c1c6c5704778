"""A model in the cache: its files, how large they are, and whether all are there."""

import os
from pathlib import Path

from msgspec import Struct

from sharpi.hub.model_name import ModelName
from sharpi.hub.variants import Variant


class CachedFile(Struct, frozen=True):
    """One file: its path in the repository, and where it lies; a link unless it was only begun."""

    path: str
    location: Path
    size: int
    modified: float
    is_partial: bool = False


class CachedModel(Struct, frozen=True):
    """One model of one revision, with its files in order."""

    name: ModelName
    variant: Variant
    files: tuple[CachedFile, ...]

    @property
    def is_complete(self) -> bool:
        """Whether it can be run: every part is there, and none only begun."""
        return not self.variant.missing_parts and not any(file.is_partial for file in self.files)

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return sum(file.size for file in self.files)

    @property
    def modified(self) -> float:
        """When the last of its files was written, in seconds since 1970."""
        return max(file.modified for file in self.files)

    @property
    def start(self) -> Path:
        """The file to open: the only one, or the first part."""
        return self.files[0].location


def cached_files(folder: Path, is_partial: bool = False) -> list[CachedFile]:
    """What lies below `folder`; links into nothing are passed over."""
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
    return sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)


def entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []
