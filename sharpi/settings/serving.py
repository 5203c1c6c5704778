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
        str,
        Option(
            "--host",
            "The address or name to listen on; 0.0.0.0: all addresses.",
            "HOST",
            is_everyday=True,
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Option("--port", "The port; 0 takes a free one.", "N", min=0, max=65535, is_everyday=True),
    ] = 8080
    api_key: Annotated[
        tuple[str, ...],
        Option(
            "--api-key",
            "Require this key of clients; may be repeated. The variable holds several, separated "
            "by spaces.",
            "KEY",
            parse=_key,
            is_repeated=True,
            is_everyday=True,
        ),
    ] = ()
    alias: Annotated[
        tuple[str, ...],
        Option(
            "--alias",
            "Name of the model for clients, besides its file's name; may be repeated.",
            "NAME",
            is_repeated=True,
            is_everyday=True,
        ),
    ] = ()
    parallel: Annotated[
        int,
        Option(
            "-np --parallel",
            "Maximum number of answers computed together.",
            "N",
            min=1,
            max=64,
            is_everyday=True,
        ),
    ] = 4
    queue: Annotated[
        int, Option("--queue", "Answers that may wait; more are refused.", "N", min=0)
    ] = 64
    slot_save_path: Annotated[
        Path | None,
        Option(
            "--slot-save-path",
            "Let clients save and restore the KV cache of a slot in files of this folder.",
            "DIR",
        ),
    ] = None
    idle_unload: Annotated[
        float | None,
        Option(
            "--idle-unload",
            "Unload the model after this many minutes without a request; the next request loads "
            "it again.",
            "MINUTES",
            min=0,
        ),
    ] = None
    max_body: Annotated[
        int | None,
        Option(
            "--max-body",
            "Maximum size of a request, as in 32MiB.",
            "SIZE",
            parse=size,
            shown_default="what the context can need, at most 32MiB",
        ),
    ] = None
    grace: Annotated[
        float,
        Option(
            "--grace",
            "Seconds that open answers have to finish when the server is stopped.",
            "SECONDS",
            min=0,
        ),
    ] = 10.0
    cors_origin: Annotated[
        tuple[str, ...],
        Option(
            "--cors-origin",
            "Allow requests from web pages of this origin ('*': any); may be repeated.",
            "ORIGIN",
            is_repeated=True,
        ),
    ] = ()
    log_requests: Annotated[
        bool, Option("--log-requests", "Print a line on stderr for each request.")
    ] = False
