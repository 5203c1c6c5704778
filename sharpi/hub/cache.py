"""Finds and removes GGUF models in Hugging Face's cache folder, complete or partly downloaded.

The layout is documented by huggingface_hub: `models--ORG--REPO/` with `blobs/` (content, named by
its checksum), `snapshots/COMMIT/` (links to blobs, with the files' names) and `refs/` (branch to
commit). sharpi adds `partial/CHECKSUM/` with the partial files of interrupted downloads.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from sharpi.errors import HubError, close_matches
from sharpi.hub.catalogue import ModelName
from sharpi.hub.choice import Variant, choose, find_variants


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
    files = []
    for path in files_below(folder):
        try:
            status = path.stat()
        except OSError:
            continue
        relative = path.relative_to(folder).as_posix()
        files.append(CachedFile(relative, path, status.st_size, status.st_mtime, is_partial))
    return files


def files_below(folder: Path) -> list[Path]:
    """Returns the sorted paths of all files in `folder` and its subfolders."""
    return sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)


MAIN = "main"
_PREFIX = "models--"


class Cache:
    """Finds the models in one cache folder, which need not exist; by default the hub's own."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_cache_folder()

    def repositories(self) -> list[str]:
        """Returns the names of all model repositories in the cache, with or without GGUF files."""
        folders = (path for path in self.folder.glob(f"{_PREFIX}*") if path.is_dir())
        return sorted(path.name.removeprefix(_PREFIX).replace("--", "/") for path in folders)

    def repository_folder(self, repository: str) -> Path:
        """Returns the cache folder for all files of a repository, whether or not it exists."""
        return self.folder / (_PREFIX + repository.replace("/", "--"))

    def all_models(self) -> list[CachedModel]:
        """Returns the GGUF models of all repositories, sorted by repository."""
        return [model for each in self.repositories() for model in self.models(each)]

    def models(self, repository: str) -> list[CachedModel]:
        """Returns the models of one repository, those of the main revision first, newest next.

        The name of a model of another revision includes the revision only if an earlier, complete
        model in the list has the same quant.
        """
        revisions = self._revisions(repository)
        main = self.commit(repository, MAIN) or next(iter(revisions), "")
        models: list[CachedModel] = []
        for commit in sorted(revisions, key=lambda each: each != main):
            files = revisions[commit]
            if commit == main:
                files = _with_partial(files, self._partial(repository))
            models += self._of_revision(repository, commit, files, models)
        return models

    def revision_models(self, repository: str, revision: str) -> list[CachedModel]:
        """Returns the models of one branch, tag or commit; 7 digits of a commit are enough."""
        commit = self.commit(repository, revision) or revision
        revisions = self._revisions(repository)
        commits = [each for each in revisions if each == commit or _abbreviates(revision, each)]
        return [
            CachedModel(ModelName(repository, variant.label, revision), variant, files)
            for each in commits[:1]
            for variant, files in _grouped(revisions[each])
        ]

    def commit(self, repository: str, ref: str) -> str | None:
        """Returns the commit that a branch or tag had when it was last fetched; None if unknown."""
        try:
            return (self.repository_folder(repository) / "refs" / ref).read_text("utf-8").strip()
        except OSError:
            return None

    def remember(self, repository: str, ref: str, commit: str) -> None:
        """Stores which commit a branch or tag points to, unless `ref` is the commit itself."""
        if ref == commit:
            return
        path = self.repository_folder(repository) / "refs" / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit, "utf-8")

    def _of_revision(
        self, repository: str, commit: str, files: list[CachedFile], before: list[CachedModel]
    ) -> Iterator[CachedModel]:
        taken = {model.name.quant for model in before if model.is_complete}
        for variant, members in _grouped(files):
            is_other = variant.label in taken
            revision = self._revision_name(repository, commit) if is_other else None
            yield CachedModel(ModelName(repository, variant.label, revision), variant, members)

    def _revision_name(self, repository: str, commit: str) -> str:
        """Returns a branch or tag that points to `commit`, or else the commit's first 8 digits."""
        folder = self.repository_folder(repository) / "refs"
        refs = [path.relative_to(folder).as_posix() for path in files_below(folder)]
        return next((ref for ref in refs if self.commit(repository, ref) == commit), commit[:8])

    def _revisions(self, repository: str) -> dict[str, list[CachedFile]]:
        """Returns the files of each commit in the cache, the newest commit first."""
        folders = sorted(self.repository_folder(repository).glob("snapshots/*"))
        files_of = [(folder.name, cached_files(folder)) for folder in folders]
        files_of.sort(key=lambda each: -max((file.modified for file in each[1]), default=0))
        return dict(files_of) or {"": []}

    def _partial(self, repository: str) -> list[CachedFile]:
        checksums = sorted(self.repository_folder(repository).glob("partial/*"))
        return [file for each in checksums for file in cached_files(each, is_partial=True)]


def _grouped(files: Iterable[CachedFile]) -> Iterator[tuple[Variant, tuple[CachedFile, ...]]]:
    by_path = {file.path: file for file in files}
    for variant in find_variants(by_path):
        yield variant, tuple(by_path[path] for path in variant.paths)


def _with_partial(files: list[CachedFile], partial: list[CachedFile]) -> list[CachedFile]:
    there = {file.path for file in files}
    return files + [file for file in partial if file.path not in there]


def _abbreviates(text: str, commit: str) -> bool:
    return len(text) >= 7 and commit.startswith(text.lower())


def default_cache_folder() -> Path:
    """Returns the folder of huggingface_hub's cache, as HF_HUB_CACHE or HF_HOME set it."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def look_up(cache: Cache, name: ModelName) -> tuple[CachedModel, str | None]:
    """Returns the complete model that `name` refers to, and a note if the choice is uncertain.

    Raises HubError, which explains how to download the model or lists similar names, if the cache
    has no such model.
    """
    models = [model for model in models_of(cache, name) if model.is_complete]
    if not models:
        raise HubError(_missing(cache, name))
    try:
        chosen, note = choose(name, [model.variant for model in models], "in the cache")
    except HubError as error:
        raise HubError(f"{error}; or type `sharpi pull {name}`") from error
    return next(model for model in models if model.variant is chosen), note


def models_of(cache: Cache, name: ModelName) -> list[CachedModel]:
    """Returns cached models, complete or not, of the repository and revision in `name`."""
    if name.revision is not None:
        return cache.revision_models(name.repository, name.revision)
    return [each for each in cache.models(name.repository) if each.name.revision is None]


def _missing(cache: Cache, name: ModelName) -> str:
    if any(not model.is_complete for model in models_of(cache, name)):
        return f"{name} is only partly in the cache; `sharpi pull {name}` fetches the rest"
    close = close_matches(name.repository, {model.name.repository for model in cache.all_models()})
    near = f"; close to it in the cache: {', '.join(close)}" if close else ""
    absent = "is neither a file nor in the cache" if name.quant is None else "is not in the cache"
    return f"{name} {absent}; type `sharpi pull {name}`{near}"


class Removal:
    """A planned removal of models; `carry_out` deletes their links, and blobs without others.

    A program that has a removed file open or mapped can use its content until it exits.
    """

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
