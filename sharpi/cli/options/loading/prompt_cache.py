"""The options of the prompt cache: a folder for KV cache pages, and its size limit."""

from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.options.loading.tier import memory
from sharpi.cli.options.option import option
from sharpi.config import RunConfig

_RUN = RunConfig(model=Path())


class PromptCacheOptions(Struct, frozen=True):
    """The folder that keeps computed prompts for later processes, and its size limit."""

    heading: ClassVar = "Context"

    prompt_cache: Annotated[
        Path | None,
        option(
            "--prompt-cache",
            "Keep computed prompts in the folder DIR and reuse them, also after a restart.",
            "DIR",
        ),
    ] = _RUN.prompt_cache
    prompt_cache_size: Annotated[
        int | None,
        option(
            "--prompt-cache-size",
            "Maximum size of that folder; the least recently used goes first.",
            "SIZE",
            parser=memory,
            show_default="16GiB",
        ),
    ] = None

    def extend(self, config: RunConfig) -> RunConfig:
        """Returns `config` with these options."""
        max_bytes = config.prompt_cache_bytes
        if self.prompt_cache_size is not None:
            max_bytes = self.prompt_cache_size
        return replace(config, prompt_cache=self.prompt_cache, prompt_cache_bytes=max_bytes)
