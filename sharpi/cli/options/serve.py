"""The options of the server: address, access and limits."""

from pathlib import Path
from typing import Annotated, ClassVar

import click
from msgspec import Struct

from sharpi.cli.options.loading.tier import size
from sharpi.cli.options.option import count, finite, option


def _key(value: str) -> str:
    """Returns the API key; raises BadParameter if an HTTP header cannot hold it."""
    if (
        not value.strip()
        or not value.isascii()
        or not value.isprintable()
        or value != value.strip()
    ):
        raise click.BadParameter("a key must be printable ASCII without blanks around it")
    return value


class ServeOptions(Struct, frozen=True):
    """The address, access and limits of the server."""

    heading: ClassVar = "Server"

    host: Annotated[
        str,
        option(
            "--host",
            "The address or name to listen on; 0.0.0.0: all addresses.",
            "HOST",
            is_everyday=True,
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        option("--port", "The port; 0 takes a free one.", "N", min=0, max=65535, is_everyday=True),
    ] = 8080
    api_key: Annotated[
        list[str] | None,
        option(
            "--api-key",
            "Require this key of clients; may be repeated. The variable holds several, separated "
            "by spaces.",
            "KEY",
            callback=_key,
            is_everyday=True,
        ),
    ] = None
    alias: Annotated[
        list[str] | None,
        option(
            "--alias",
            "Name of the model for clients, besides its file's name; may be repeated.",
            "NAME",
            is_everyday=True,
        ),
    ] = None
    parallel: Annotated[
        int,
        option(
            "-np --parallel",
            "Maximum number of answers computed together.",
            "N",
            min=1,
            max=64,
            is_everyday=True,
        ),
    ] = 4
    queue: Annotated[
        int,
        option("--queue", "Answers that may wait; more are refused.", "N", min=0, callback=count),
    ] = 64
    slot_save_path: Annotated[
        Path | None,
        option(
            "--slot-save-path",
            "Let clients save and restore the KV cache of a slot in files of this folder.",
            "DIR",
        ),
    ] = None
    idle_unload: Annotated[
        float | None,
        option(
            "--idle-unload",
            "Unload the model after this many minutes without a request; the next request loads "
            "it again.",
            "MINUTES",
            min=0,
            callback=finite,
        ),
    ] = None
    max_body: Annotated[
        int | None,
        option(
            "--max-body",
            "Maximum size of a request, as in 32MiB.",
            "SIZE",
            parser=size,
            show_default="what the context can need, at most 32MiB",
        ),
    ] = None
    grace: Annotated[
        float,
        option(
            "--grace",
            "Seconds that open answers have to finish when the server is stopped.",
            "SECONDS",
            min=0,
            callback=finite,
        ),
    ] = 10.0
    cors_origin: Annotated[
        list[str] | None,
        option(
            "--cors-origin",
            "Allow requests from web pages of this origin ('*': any); may be repeated.",
            "ORIGIN",
        ),
    ] = None
    log_requests: Annotated[
        bool, option("--log-requests", "Print a line on stderr for each request.")
    ] = False
