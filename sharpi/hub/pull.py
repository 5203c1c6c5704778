"""Implements `sharpi pull` except its output: downloads a model's files into the cache."""

from pathlib import Path

from huggingface_hub import HfApi, hf_hub_download, hf_hub_url
from huggingface_hub.utils import build_hf_headers
from msgspec import Struct

from sharpi.errors import HubError
from sharpi.hub.blobs import Blobs
from sharpi.hub.cache import MAIN, Cache
from sharpi.hub.choice import choose
from sharpi.hub.hub_errors import UnreachableError, hub_errors
from sharpi.hub.look_up import look_up
from sharpi.hub.model_name import ModelName
from sharpi.hub.repository import RemoteFile, ask
from sharpi.hub.transfer import DownloadSource, RetryPolicy, receive
from sharpi.hub.variants import Variant, find_variants
from sharpi.hub.watcher import Watcher

_RETRIES = RetryPolicy()


class Pulled(Struct, frozen=True):
    """The result of a pull: a model that is complete in the cache."""

    name: ModelName
    start: Path  # the file to open
    received_bytes: int


class Puller:
    """Downloads models into one cache.

    `endpoint`: the URL of the hub; None means HF_ENDPOINT, or else huggingface.co.
    """

    def __init__(
        self,
        cache: Cache,
        watcher: Watcher,
        endpoint: str | None = None,
        retries: RetryPolicy = _RETRIES,
    ) -> None:
        self._cache, self._watcher, self._retries = cache, watcher, retries
        self._endpoint = endpoint
        self._api = HfApi(endpoint=endpoint)
        self._received = 0

    def pull(self, name: ModelName) -> Pulled:
        """Downloads those files of a model that are not in the cache.

        If the hub is not reachable, returns the model in the cache. Raises HubError, and OSError if
        the disk is full.
        """
        self._received = 0
        try:
            remote = ask(self._api, name)
        except UnreachableError as error:
            return self._from_cache(name, error)
        variant, note = choose(name, find_variants(remote.files), "at the hub")
        if note is not None:
            self._watcher.note(note)
        _require_all_parts(name, variant)
        files = [remote.files[path] for path in variant.paths]
        blobs = Blobs(self._cache, name.repository, self._watcher)
        blobs.require_space(name, files)
        starts = [self._fetch(blobs, remote.commit, file) for file in files]
        self._cache.remember(name.repository, name.revision or MAIN, remote.commit)
        named = ModelName(name.repository, variant.label, name.revision)
        return Pulled(named, starts[0], self._received)

    def _from_cache(self, name: ModelName, error: UnreachableError) -> Pulled:
        try:
            model, note = look_up(self._cache, name)
        except HubError:
            raise UnreachableError(f"{error}, and {name} is not in the cache") from error
        self._watcher.note(f"{error}; using {model.name} from the cache")
        if note is not None:
            self._watcher.note(note)
        return Pulled(model.name, model.start, 0)

    def _fetch(self, blobs: Blobs, commit: str, file: RemoteFile) -> Path:
        """Downloads one file and adds it to the snapshot; returns its path there.

        So `sharpi rm` finds the file even if the pull of further parts is interrupted.
        """
        with blobs.locked(file):
            if not blobs.has(file):
                self._download(blobs, commit, file)
        return self._link(blobs.repository, commit, file)

    def _download(self, blobs: Blobs, commit: str, file: RemoteFile) -> None:
        url = hf_hub_url(blobs.repository, file.path, revision=commit, endpoint=self._endpoint)
        source = DownloadSource(blobs.repository, url, build_hf_headers(library_name="sharpi"))
        with blobs.partial(file) as target:
            self._watcher.begin(file.path, file.size, target.received)
            receive(source, target, self._retries, self._advance)
        blobs.keep(file, target)
        self._watcher.end()

    def _advance(self, count: int) -> None:
        self._received += count
        self._watcher.advance(count)

    def _link(self, repository: str, commit: str, file: RemoteFile) -> Path:
        """Lets huggingface_hub add the blob to the snapshot; returns the file's path there."""
        with hub_errors(repository):
            return Path(
                hf_hub_download(
                    repository,
                    file.path,
                    revision=commit,
                    cache_dir=self._cache.folder,
                    endpoint=self._endpoint,
                )
            )


def _require_all_parts(name: ModelName, variant: Variant) -> None:
    if variant.missing_parts:
        number = variant.missing_parts[0]
        raise HubError(f"{name.repository} lacks part {number} of {variant.num_parts} of {name}")
