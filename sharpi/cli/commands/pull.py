"""`sharpi pull`: downloads a model from the hub into the cache."""

import logging
from typing import Annotated

import typer

from sharpi.cli import exit_codes
from sharpi.cli.output.download_display import download_display
from sharpi.cli.output.terminal import say
from sharpi.errors import UsageError
from sharpi.hub.model_name import ModelName, require_name
from sharpi.units import format_bytes


def pull(
    name: Annotated[
        str,
        typer.Argument(
            metavar="REPO[:QUANT]",
            help="A repository as ORG/REPO, and one of its quants, as in :Q4_K_M.",
        ),
    ],
    revision: Annotated[
        str | None,
        typer.Option(
            "--revision", metavar="REV", help="A branch, tag or commit.", show_default="main"
        ),
    ] = None,
) -> None:
    """Download a model from the Hugging Face hub.

    The files go into the hub's own cache (HF_HOME), with every part of a split set, and are checked
    against the hub's checksums; an interrupted download is resumed. Prints the path of the file.
    Without QUANT, the only model is taken, or Q4_K_M, or what comes closest to it. Private and
    gated repositories need HF_TOKEN.
    """
    from sharpi.hub.cache import Cache, default_cache_folder

    wanted = _with_revision(require_name(name), revision)
    cache = Cache(default_cache_folder())
    from sharpi.hub.pull import Puller

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # sharpi reports the rest itself
    try:
        with download_display() as display:
            pulled = Puller(cache, display).pull(wanted)
    except KeyboardInterrupt:
        say(f"stopped; `sharpi pull {wanted}` resumes it")
        raise typer.Exit(exit_codes.INTERRUPTED) from None
    say(f"{_received(pulled.received_bytes)}; now `sharpi run {pulled.name}`")
    print(pulled.start)


def _received(count: int) -> str:
    return f"received {format_bytes(count)}" if count else "it is already in the cache"


def _with_revision(name: ModelName, revision: str | None) -> ModelName:
    if revision is None:
        return name
    if name.revision not in (None, revision):
        raise UsageError(f"@{name.revision} and --revision both give the revision; keep one")
    return require_name(f"{ModelName(name.repository, name.quant)}@{revision}")
