"""Reads a repository's description from the hub: the commit, and files with sizes and checksums."""

import re
from pathlib import PurePosixPath
from typing import TypeGuard

from huggingface_hub import HfApi, constants
from huggingface_hub.utils import get_session
from msgspec import Struct

from sharpi.errors import HubError
from sharpi.hub.hub_errors import NoRepositoryError, hub_errors
from sharpi.hub.model_name import ModelName

_MAX_CLOSE = 3
_SEARCH_SECONDS = 5.0


class RemoteFile(Struct, frozen=True):
    """One file on the hub."""

    path: str
    size: int  # in bytes
    checksum: str  # the name of its blob: SHA-256 of a large file, else git's SHA-1


class RemoteRepository(Struct, frozen=True):
    """The commit and files of a revision, at the time of the request to the hub."""

    commit: str
    files: dict[str, RemoteFile]  # by path


def ask(api: HfApi, name: ModelName) -> RemoteRepository:
    """Requests the commit and files of a revision; raises HubError with similar names."""
    try:
        with hub_errors(name.repository):
            info = api.model_info(
                name.repository,
                revision=name.revision,
                files_metadata=True,
                timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            )
    except (ValueError, KeyError, TypeError) as error:
        raise HubError(f"{api.endpoint} does not answer as a model hub does") from error
    except NoRepositoryError as error:
        raise NoRepositoryError(f"{error}{_close_at_hub(api, name.repository)}") from error
    if info.sha is None:
        raise HubError(f"the hub does not say which commit {name} is")
    files = (_file(each) for each in info.siblings or ())
    return RemoteRepository(info.sha, {file.path: file for file in files if file is not None})


def _file(sibling: object) -> RemoteFile | None:
    """Converts an entry of the hub's list; None without size or checksum, or if it leads out."""
    path, size = getattr(sibling, "rfilename", ""), getattr(sibling, "size", None)
    lfs = getattr(sibling, "lfs", None)
    checksum = getattr(lfs, "sha256", None) or getattr(sibling, "blob_id", None)
    parts = PurePosixPath(path).parts
    if not isinstance(size, int) or not _is_checksum(checksum) or {"..", "/"} & set(parts):
        return None
    return RemoteFile(path, size, checksum)


def _is_checksum(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", text) is not None


def _close_at_hub(api: HfApi, repository: str) -> str:
    """Returns the end of a message with similar repositories; empty if the search finds none."""
    wanted = {"search": repository.split("/")[-1], "filter": "gguf", "limit": str(_MAX_CLOSE)}
    url = f"{api.endpoint}/api/models"
    try:
        models = get_session().get(url, params=wanted, timeout=_SEARCH_SECONDS).json()
        names = [str(model["id"]) for model in models[:_MAX_CLOSE]]
    except Exception:  # the search is optional, so its failure is ignored
        return ""
    return f"; close to it: {', '.join(names)}" if names else ""
