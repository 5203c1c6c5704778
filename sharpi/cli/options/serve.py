"""The options of the server itself: where it listens, who may ask, and how much at once."""

from typing import Annotated, ClassVar

import typer
from msgspec import Struct

from sharpi.cli.options.option import count, finite, option
from sharpi.cli.options.tier import size


def _keys(value: list[str] | None) -> list[str] | None:
    """A callback that refuses keys which no header can carry."""
    for key in value or []:
        if not key.strip() or not key.isascii() or not key.isprintable() or key != key.strip():
            raise typer.BadParameter("a key is printable ASCII without blanks around it.")
    return value


class ServeOptions(Struct, frozen=True):
    """Where the server listens, who may ask, and how much at once."""

    heading: ClassVar = "Server"

    host: Annotated[
        str, option("--host", "The address or name to listen on; 0.0.0.0 is all of them.", "HOST")
    ] = "127.0.0.1"
    port: Annotated[
        int, option("--port", "The port; 0 takes a free one.", "N", min=0, max=65535)
    ] = 8080
    api_key: Annotated[
        list[str] | None,
        option(
            "--api-key",
            "Ask clients for this key; may be given again, the variable holds several with blanks "
            "between.",
            "KEY",
            callback=_keys,
        ),
    ] = None
    alias: Annotated[
        list[str] | None,
        option(
            "--alias",
            "What clients call the model, as well as its file's name; may be given again.",
            "NAME",
        ),
    ] = None
    parallel: Annotated[
        int,
        option("--parallel", "Answers that share steps at most.", "N", min=1, max=64),
    ] = 4
    queue: Annotated[
        int,
        option("--queue", "Answers that may wait; more are refused.", "N", min=0, callback=count),
    ] = 64
    idle_unload: Annotated[
        float | None,
        option(
            "--idle-unload",
            "Give the model's memory back after so many minutes without a request; the next one "
            "loads it again.",
            "MINUTES",
            min=0,
            callback=finite,
        ),
    ] = None
    max_body: Annotated[
        int | None,
        option(
            "--max-body",
            "Size of a request at most, as in 32MiB.",
            "SIZE",
            parser=size,
            show_default="32MiB",
        ),
    ] = None
    grace: Annotated[
        float,
        option(
            "--grace",
            "Seconds that open answers have to end when the server is stopped.",
            "SECONDS",
            min=0,
            callback=finite,
        ),
    ] = 10.0
    cors_origin: Annotated[
        list[str] | None,
        option(
            "--cors-origin",
            "Let web pages of this origin ask ('*': any); may be given again.",
            "ORIGIN",
        ),
    ] = None
    log_requests: Annotated[
        bool, option("--log-requests", "A line on stderr for each request.")
    ] = False
