"""The options of the context: its size in tokens, and what happens when it is full."""

from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Struct

from sharpi.cli.options.option import count, option
from sharpi.config import RunConfig

_RUN = RunConfig(model=Path())


class ContextOptions(Struct, frozen=True):
    """The size of the context, and what happens when it is full."""

    heading: ClassVar = "Context"

    ctx_size: Annotated[
        int | None,
        option(
            "-c --ctx-size",
            "Tokens of context.",
            "N",
            min=1,
            callback=count,
            show_default="the model's, at most 4096",
            is_everyday=True,
        ),
    ] = None
    context_shift: Annotated[
        bool,
        option(
            "--context-shift/--no-context-shift",
            "When the context is full, drop its older half and continue.",
        ),
    ] = _RUN.context_shift
