"""The options of a GPU that has not all experts: what becomes of those that it misses."""

import math
from typing import Annotated, ClassVar

import typer
from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.options.option import count, finite, option
from sharpi.cli.options.option_sources import OptionSources
from sharpi.config import ExpertConfig, Miss, RunConfig

_EXPERTS = ExpertConfig()
_STASH = ("moe_paged_stash_page_size", "moe_paged_stash_gpu_factor", "moe_paged_stash_cpu_factor")


def _factor(value: float | None) -> float | None:
    """A callback that refuses nan, inf, 0 and what is below, but not what was left out."""
    if value is not None and (not math.isfinite(value) or value <= 0):
        raise typer.BadParameter(f"{value} is not a finite number above 0.")
    return value


class MissOptions(Struct, frozen=True):
    """Misses, and the buffers of prompts; of no effect where no GPU computes with slots."""

    heading: ClassVar = "Experts that a GPU has not"

    moe_miss: Annotated[
        Miss,
        option(
            "--moe-miss",
            "cpu: computed by the CPU meanwhile; stream: read in place over the bus; load: copied "
            "first; auto: what the running model shows to be the quickest.",
        ),
    ] = _EXPERTS.miss
    moe_capacity_factor: Annotated[
        float | None,
        option(
            "--moe-capacity-factor",
            "Room for the routed rows of a prompt's tokens, 1 being what each token has on "
            "average; a batch that needs more is run again.",
            "F",
            callback=_factor,
            show_default="the worst case",
        ),
    ] = _EXPERTS.capacity_factor
    moe_paged_stash: Annotated[
        bool,
        option(
            "--moe-paged-stash/--no-moe-paged-stash",
            "Keep activations of long prompts in pages.",
        ),
    ] = _EXPERTS.paged_stash
    moe_paged_stash_page_size: Annotated[
        int,
        option("--moe-paged-stash-page-size", "Tokens of such a page.", "N", min=1, callback=count),
    ] = _EXPERTS.stash_page_tokens
    moe_paged_stash_gpu_factor: Annotated[
        float,
        option(
            "--moe-paged-stash-gpu-factor",
            "Pages on the GPU, over those that are expected to be needed.",
            "F",
            min=0,
            callback=finite,
        ),
    ] = _EXPERTS.stash_gpu_factor
    moe_paged_stash_cpu_factor: Annotated[
        float,
        option(
            "--moe-paged-stash-cpu-factor",
            "As many more in page-locked RAM, for what the GPU has no page for.",
            "F",
            min=0,
            callback=finite,
        ),
    ] = _EXPERTS.stash_cpu_factor

    def extend(self, config: RunConfig, sources: OptionSources) -> RunConfig:
        """`config` with these; raises UsageError for two that contradict each other."""
        self._refuse_contradictions(config, sources)
        experts = replace(
            config.experts,
            miss=self.moe_miss,
            capacity_factor=self.moe_capacity_factor,
            paged_stash=self.moe_paged_stash,
            stash_page_tokens=self.moe_paged_stash_page_size,
            stash_gpu_factor=self.moe_paged_stash_gpu_factor,
            stash_cpu_factor=self.moe_paged_stash_cpu_factor,
        )
        return replace(config, experts=experts)

    def _refuse_contradictions(self, config: RunConfig, sources: OptionSources) -> None:
        """Of the stash's sizes only what was really asked for against --no-moe-paged-stash."""
        if config.cpu_moe and self.moe_miss in ("stream", "load"):
            sources.refuse(
                "cpu_moe", "moe_miss", "the CPU computes all experts, or some cross the bus"
            )
        if self.moe_paged_stash or not sources.has("moe_paged_stash"):
            return
        for name in _STASH:
            if sources.has(name):
                sources.refuse("moe_paged_stash", name, "the other is about the stash")
