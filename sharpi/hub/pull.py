"""Downloads a model's files into the cache, over HTTP in ranges, and resumes broken downloads.

It does not use huggingface_hub's download function, which restarts a file after the program was
stopped, does not check the content, and rejects files above 50 GB, for which ranges are needed.
"""

import time
from pathlib import Path

from huggingface_hub import HfApi, constants, hf_hub_download, hf_hub_url
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status
from msgspec import Struct

from sharpi.errors import HubError
from sharpi.hub.blobs import Blobs, PartialFile, Watcher
from sharpi.hub.cache import MAIN, Cache, look_up
from sharpi.hub.catalogue import ModelName
from sharpi.hub.choice import Variant, choose, find_variants
from sharpi.hub.repository import RemoteFile, UnreachableError, ask, hub_errors

_RANGE_BYTES = 16 << 30  # bytes of one request: content networks do not serve more than 50 GB


_ATTEMPTS = 5  # successive ones that receive nothing
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 30.0


class Pulled(Struct, frozen=True):
    """The result of a pull: a model that is complete in the cache."""

    name: ModelName
    start: Path  # the file to open
    received_bytes: int


class Puller:
    """Downloads models into one cache; `endpoint` None means HF_ENDPOINT or huggingface.co."""

    def __init__(
        self,
        cache: Cache,
        watcher: Watcher,
        endpoint: str | None = None,
    ) -> None:
        self._cache, self._watcher = cache, watcher
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
        """Downloads one file and adds it to the snapshot, where `sharpi rm` finds it."""
        with blobs.locked(file):
            if not blobs.has(file):
                self._download(blobs, commit, file)
        return self._link(blobs.repository, commit, file)

    def _download(self, blobs: Blobs, commit: str, file: RemoteFile) -> None:
        url = hf_hub_url(blobs.repository, file.path, revision=commit, endpoint=self._endpoint)
        with blobs.partial(file) as target:
            self._watcher.begin(file.path, file.size, target.received)
            self._receive(blobs.repository, url, target)
        blobs.keep(file, target)
        self._watcher.end()

    def _receive(self, repository: str, url: str, target: PartialFile) -> None:
        """Downloads the rest of a file; raises HubError if several attempts receive nothing."""
        num_failed = 0
        while not target.is_complete:
            before, error = target.received, None
            try:
                with hub_errors(repository):
                    self._receive_range(url, target)
            except UnreachableError as fault:
                error = fault
            num_failed = 0 if target.received > before else num_failed + 1
            if num_failed >= _ATTEMPTS:
                raise error or UnreachableError(f"the download of {url} ended early")
            if error is not None:
                wait = error.wait_seconds
                wait = _FIRST_WAIT_SECONDS * 2**num_failed if wait is None else wait
                time.sleep(min(wait, _LONGEST_WAIT_SECONDS))

    def _receive_range(self, url: str, target: PartialFile) -> None:
        last = min(target.size, target.received + _RANGE_BYTES) - 1
        headers = build_hf_headers(library_name="sharpi") | {
            "Range": f"bytes={target.received}-{last}",
            "Accept-Encoding": "identity",
        }
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
            hf_raise_for_status(response)
            if response.status_code != 206:  # the server sent the whole file, not the range
                self._advance(-target.received)
                target.restart()
            # No chunk size: if the connection broke, a partly filled chunk would be lost.
            for data in response.iter_bytes():
                target.append(data)
                self._advance(len(data))
                if target.received > target.size:
                    return

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
