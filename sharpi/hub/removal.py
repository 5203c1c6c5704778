"""Removes models from the cache: their links, and the blobs to which no other links point.

On Linux, a program that has a removed file open or mapped can use its content until it exits.
"""

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sharpi.hub.cache import Cache, CachedFile, CachedModel, files_below


class Removal:
    """A planned removal of models; `carry_out` deletes their files."""

    def __init__(self, cache: Cache, models: Iterable[CachedModel]) -> None:
        self._cache = cache
        models = list(models)
        self._files = [file for model in models for file in model.files]
        self._folders = {cache.repository_folder(each.name.repository) for each in models}
        kept = self._blobs_of_others()
        blobs = {_blob(file): file.size for file in self._files}
        self._blobs = [blob for blob in blobs if blob not in kept]
        freed = [blob for blob in self._blobs if not blob.is_symlink()]
        self.freed_bytes = sum(blobs[blob] for blob in freed)
        self.kept_bytes = sum(blobs.values()) - self.freed_bytes

    def carry_out(self) -> None:
        """Deletes the files, and folders that are then empty; raises OSError if it cannot."""
        for file in self._files:
            file.location.unlink(missing_ok=True)
            _remove_empty_folders(file.location.parent)
        for blob in self._blobs:
            blob.unlink(missing_ok=True)
        for folder in self._folders:
            if not any(files_below(folder / part) for part in ("snapshots", "blobs", "partial")):
                shutil.rmtree(folder)

    def _blobs_of_others(self) -> set[Path]:
        """Returns the blobs to which files that are not removed link, in the same repositories."""
        removed = {file.location for file in self._files}
        links = (link for folder in self._folders for link in files_below(folder / "snapshots"))
        return {_target(link) for link in links if link not in removed}


def _blob(file: CachedFile) -> Path:
    return _target(file.location)


def _target(link: Path) -> Path:
    """Returns the target of one link, itself perhaps a link to a shared cache, or the path."""
    if not link.is_symlink():
        return link
    return Path(os.path.normpath(link.parent / os.readlink(link)))


def _remove_empty_folders(folder: Path) -> None:
    with suppress(OSError):  # raised by the first folder that is not empty
        while folder.name not in ("snapshots", "partial"):
            folder.rmdir()
            folder = folder.parent
