"""The options for misses: experts that the GPU needs and that are in none of its slots."""

import math
from typing import Annotated, ClassVar

import click
from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.options.option import count, finite, option
from sharpi.cli.options.option_sources import OptionSources
from sharpi.config import ExpertConfig, Miss, RunConfig

_EXPERTS = ExpertConfig()
_STASH = ("moe_paged_stash_page_size", "moe_paged_stash_gpu_factor", "moe_paged_stash_cpu_factor")


def _factor(value: float | None) -> float | None:
    """Returns the value if it is None, or finite and above 0; raises BadParameter otherwise."""
    if value is not None and (not math.isfinite(value) or value <= 0):
        raise click.BadParameter(f"{value} is not a finite number above 0.")
    return value


class MissOptions(Struct, frozen=True):
    """The miss mode of a GPU and its prefill buffers; without effect unless the GPU has slots."""

    heading: ClassVar = "Experts not on the GPU"

    moe_miss: Annotated[
        Miss,
        option(
            "--moe-miss",
            "cpu: the CPU computes them beside the GPU; stream: the GPU reads them over the bus; "
            "load: they are copied first; auto: the fastest, as measured while running.",
        ),
    ] = _EXPERTS.miss
    moe_capacity_factor: Annotated[
        float | None,
        option(
            "--moe-capacity-factor --moe-expert-rank-capacity-factor",
            "Room for the routed rows of a prompt's tokens; 1 is the average need. A batch that "
            "needs more runs again.",
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
        option(
            "--moe-paged-stash-page-size",
            "Tokens per page of the stash.",
            "N",
            min=1,
            callback=count,
        ),
    ] = _EXPERTS.stash_page_tokens
    moe_paged_stash_gpu_factor: Annotated[
        float,
        option(
            "--moe-paged-stash-gpu-factor --moe-paged-stash-buffer-size-factor-cuda",
            "Pages on the GPU, as a multiple of those expected to be needed.",
            "F",
            min=0,
            callback=finite,
        ),
    ] = _EXPERTS.stash_gpu_factor
    moe_paged_stash_cpu_factor: Annotated[
        float,
        option(
            "--moe-paged-stash-cpu-factor --moe-paged-stash-buffer-size-factor-cpu",
            "More pages in page-locked RAM, as a multiple of the same number.",
            "F",
            min=0,
            callback=finite,
        ),
    ] = _EXPERTS.stash_cpu_factor

    def extend(self, config: RunConfig, sources: OptionSources) -> RunConfig:
        """Returns `config` with these options; raises UsageError for contradictory ones."""
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
        """Raises UsageError for contradictory options; default values never contradict."""
        if config.cpu_moe and self.moe_miss in ("stream", "load"):
            sources.raise_conflict(
                "cpu_moe", "moe_miss", "either the CPU computes all experts, or some cross the bus"
            )
        if self.moe_paged_stash or not sources.has("moe_paged_stash"):
            return
        for name in _STASH:
            if sources.has(name):
                sources.raise_conflict("moe_paged_stash", name, "the other sets up the stash")
