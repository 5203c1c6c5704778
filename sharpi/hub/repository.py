"""What the hub says of a repository: its commit and files, or why it refuses, in one line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TypeGuard, cast

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import get_session
from msgspec import Struct

from sharpi.errors import HubError
from sharpi.hub.catalogue import ModelName

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


# huggingface_hub uses httpx or httpx2, depending on its version; both have this base class.
_TRANSPORT_ERROR = cast("type[Exception]", HfHubHTTPError.__bases__[0])


class UnreachableError(HubError):
    """The hub does not answer: the network or the hub is down or busy, or offline mode is on."""

    wait_seconds: float | None = None  # before another attempt, if the hub names a time


class NoRepositoryError(HubError):
    """The hub has no such repository, or hides it from this user."""


@contextmanager
def hub_errors(repository: str) -> Iterator[None]:
    """Context manager that converts errors of huggingface_hub to HubError about `repository`."""
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise UnreachableError("HF_HUB_OFFLINE is set") from error
    except HfHubHTTPError as error:
        raise http_error(error, repository) from error
    except LocalEntryNotFoundError as error:  # raised for a HEAD request without answer
        raise UnreachableError(
            f"the hub stopped answering about {repository}; try again"
        ) from error
    except (_TRANSPORT_ERROR, ConnectionError) as error:
        raise unreachable(error) from error


def unreachable(error: BaseException) -> UnreachableError:
    """Returns the error for a host that does not answer, with the message of the HTTP library."""
    reason = " ".join(str(error).split()) or type(error).__name__
    request = getattr(error, "_request", None)
    host = constants.ENDPOINT if request is None else request.url.host
    return UnreachableError(f"no connection to {host}: {reason}")


def http_error(error: HfHubHTTPError, repository: str) -> HubError:
    """Returns the error that explains an HTTP status of the hub to the user."""
    if isinstance(error, GatedRepoError):
        return HubError(
            f"{repository} is gated: accept its terms on its page, then set HF_TOKEN to your token"
        )
    if isinstance(error, RevisionNotFoundError):
        return HubError(f"{repository} has no such revision; see its page for branches and tags")
    status = error.response.status_code
    if status == 401 and "credentials" in str(error).lower():
        return HubError("the hub does not know the token; set HF_TOKEN to one that is valid")
    if isinstance(error, RepositoryNotFoundError) or status in (401, 404):
        return NoRepositoryError(
            f"the hub has no {repository}, or it is private: then set HF_TOKEN to your token"
        )
    if status == 403:
        return HubError(f"the hub refuses {repository}; set HF_TOKEN to a token that may read it")
    return _busy(error, status) if status == 429 or status >= 500 else _refused(error, repository)


def _busy(error: HfHubHTTPError, status: int) -> UnreachableError:
    seconds = error.response.headers.get("Retry-After", "")
    wait = f"in {seconds} s" if seconds.isdecimal() else "later"
    reason = "asks to slow down" if status == 429 else "is out of order"
    busy = UnreachableError(f"the hub {reason} (status {status}); try again {wait}")
    busy.wait_seconds = float(seconds) if seconds.isdecimal() else None
    return busy


def _refused(error: HfHubHTTPError, repository: str) -> HubError:
    return HubError(f"the hub refuses {repository} with status {error.response.status_code}")
