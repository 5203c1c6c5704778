"""Finds GGUF models in Hugging Face's cache folder, complete or partly downloaded.

The layout is documented by huggingface_hub: `models--ORG--REPO/` with `blobs/` (content, named by
its checksum), `snapshots/COMMIT/` (links to blobs, with the files' names) and `refs/` (branch to
commit). sharpi adds `partial/CHECKSUM/` with the partial files of interrupted downloads.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from sharpi.errors import UsageError
from sharpi.hub.cached_model import CachedFile, CachedModel, cached_files, entries, files_below
from sharpi.hub.model_name import ModelName
from sharpi.hub.variants import Variant, find_variants
from sharpi.resources import install_command

MAIN = "main"
_PREFIX = "models--"


class Cache:
    """Finds the models in one cache folder; a folder that does not exist counts as empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def repositories(self) -> list[str]:
        """Returns the names of all model repositories in the cache, with or without GGUF files."""
        names = (entry.name for entry in entries(self.folder) if entry.is_dir())
        found = (name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))
        return sorted(name.replace("--", "/") for name in found)

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
        found = [each for each in revisions if each == commit or _abbreviates(revision, each)]
        return [
            CachedModel(ModelName(repository, variant.label, revision), variant, files)
            for each in found[:1]
            for variant, files in _grouped(revisions[each])
        ]

    def commit(self, repository: str, ref: str) -> str | None:
        """Returns the commit that a branch or tag had when it was last fetched; None if unknown."""
        try:
            return (self.repository_folder(repository) / "refs" / ref).read_text("utf-8").strip()
        except OSError:
            return None

    def remember(self, repository: str, ref: str, commit: str) -> None:
        """Stores which commit a branch or tag points to.

        Does nothing if `ref` is the commit itself.
        """
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
        folder = self.repository_folder(repository) / "snapshots"
        found = {entry.name: cached_files(Path(entry.path)) for entry in entries(folder)}
        newest = sorted(
            found, key=lambda each: -max((file.modified for file in found[each]), default=0)
        )
        return {commit: found[commit] for commit in newest} or {"": []}

    def _partial(self, repository: str) -> list[CachedFile]:
        folder = self.repository_folder(repository) / "partial"
        checksums = (Path(entry.path) for entry in entries(folder))
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
    """Returns the folder of huggingface_hub's cache, as HF_HUB_CACHE or HF_HOME set it.

    Raises UsageError if huggingface_hub is not installed.
    """
    try:
        from huggingface_hub import constants
    except ImportError as error:
        raise UsageError(
            "models by name need the package huggingface_hub; type " + install_command("hub")
        ) from error
    return Path(constants.HF_HUB_CACHE)
