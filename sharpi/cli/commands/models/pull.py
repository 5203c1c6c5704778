"""`sharpi pull`: downloads a model from the hub into the cache."""

from typing import Annotated

from sharpi.cli.options.inputs.model_name import parse_name
from sharpi.cli.output.download_display import fetch
from sharpi.cli.output.terminal import print_stderr
from sharpi.errors import UsageError
from sharpi.hub.model_name import ModelName, require_name
from sharpi.settings.option import argument, local_option
from sharpi.units import format_bytes


def pull(
    name: Annotated[
        str,
        argument(
            "REPO[:QUANT]",
            "A repository as ORG/REPO with a quant, as in :Q4_K_M, or a name of `sharpi models`.",
        ),
    ],
    revision: Annotated[
        str | None,
        local_option("--revision", "A branch, tag or commit.", "REV", shown_default="main"),
    ] = None,
) -> None:
    """Download a model from the Hugging Face hub.

    The files go into the hub's own cache (HF_HOME), with every part of a split set, and are checked
    against the hub's checksums; an interrupted download is resumed. Prints the path of the file.
    Without QUANT, the only model is taken, or Q4_K_M, or what comes closest to it. Private and
    gated repositories need HF_TOKEN.
    """
    pulled = fetch(_with_revision(parse_name(name), revision))
    print_stderr(f"{_received(pulled.received_bytes)}; now `sharpi run {pulled.name}`")
    print(pulled.start)


def _received(count: int) -> str:
    return f"received {format_bytes(count)}" if count else "it is already in the cache"


def _with_revision(name: ModelName, revision: str | None) -> ModelName:
    if revision is None:
        return name
    if name.revision not in (None, revision):
        raise UsageError(f"@{name.revision} and --revision both give the revision; keep one")
    return require_name(f"{ModelName(name.repository, name.quant)}@{revision}")
