"""The settings of the server: address, access and limits."""

from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Struct

from sharpi.settings.option import Option
from sharpi.settings.placement import size


def _key(text: str) -> str:
    """Returns the API key; raises ValueError if an HTTP header cannot hold it."""
    if not text.strip() or not text.isascii() or not text.isprintable() or text != text.strip():
        raise ValueError("a key must be printable ASCII without blanks around it")
    return text


class ServeOptions(Struct, frozen=True):
    """The address, access and limits of the server."""

    GROUP: ClassVar = "Server"

    host: Annotated[
        str, Option("--host HOST", "The address or name to listen on; 0.0.0.0: all addresses.")
    ] = "127.0.0.1"
    port: Annotated[int, Option("--port N", "The port; 0 takes a free one.", min=0, max=65535)] = (
        8080
    )
    api_key: Annotated[
        tuple[str, ...],
        Option(
            "--api-key KEY",
            "Require this key of clients; may be repeated. The variable holds several, separated "
            "by spaces.",
            parse=_key,
            is_repeated=True,
        ),
    ] = ()
    alias: Annotated[
        tuple[str, ...],
        Option("--alias NAME", "Name of the model for clients; may be repeated.", is_repeated=True),
    ] = ()
    parallel: Annotated[
        int,
        Option("-np --parallel N", "Maximum number of answers computed together.", min=1, max=64),
    ] = 4
    queue: Annotated[
        int, Option("--queue N", "Answers that may wait; more are refused.", min=0)
    ] = 64
    slot_save_path: Annotated[
        Path | None,
        Option("--slot-save-path DIR", "Let clients save and restore slots in this folder."),
    ] = None
    idle_unload: Annotated[
        float | None,
        Option(
            "--idle-unload MINUTES",
            "Unload the model after this many minutes without a request; the next request loads "
            "it again.",
            min=0,
        ),
    ] = None
    max_body: Annotated[
        int | None,
        Option(
            "--max-body SIZE",
            "Maximum size of a request, as in 32MiB.",
            parse=size,
            default="what the context can need, at most 32MiB",
        ),
    ] = None
    grace: Annotated[
        float,
        Option("--grace SECONDS", "Seconds for open answers to end when the server stops.", min=0),
    ] = 10.0
    cors_origin: Annotated[
        tuple[str, ...],
        Option(
            "--cors-origin ORIGIN",
            "Allow requests from web pages of this origin ('*': any); may be repeated.",
            is_repeated=True,
        ),
    ] = ()
    log_requests: Annotated[
        bool, Option("--log-requests", "Print a line on stderr for each request.")
    ] = False
