"""Converts exceptions of huggingface_hub to errors with a one-line message."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from sharpi.errors import HubError

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
