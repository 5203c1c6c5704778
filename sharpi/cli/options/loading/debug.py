"""The options for finding the cause of a wrong result or a lack of memory."""

from itertools import chain
from typing import Annotated, ClassVar, cast

from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.options.option import option
from sharpi.cli.options.option_sources import OptionSources
from sharpi.config import FEATURES, Feature, RunConfig
from sharpi.errors import did_you_mean

_INSTRUCTIONS: tuple[Feature, ...] = ("vnni", "vbmi")


def _features(text: str) -> tuple[Feature, ...]:
    """Parses names of features, separated by commas or blanks; raises ValueError for others."""
    names = text.replace(",", " ").split()
    unknown = next((name for name in names if name not in FEATURES), None)
    if unknown is not None:
        hint = did_you_mean(unknown, FEATURES)
        raise ValueError(f"{unknown!r} is none of {', '.join(FEATURES)}{hint}")
    return cast(tuple[Feature, ...], tuple(names))


def _whole(text: str) -> list[str]:
    return [text]


class DebugOptions(Struct, frozen=True):
    """Options that switch off parts of the program, or print GPU allocations."""

    heading: ClassVar = "Finding a fault"

    disable: Annotated[
        list[tuple[Feature, ...]] | None,
        option(
            "--disable",
            f"Switch off a part of the program: {', '.join(FEATURES)}. Several are"
            " separated by commas. `sharpi doctor` explains them.",
            "FEATURE",
            parser=_features,
            split=_whole,
            autocompletion=lambda: list(FEATURES),
        ),
    ] = None
    trace_vram: Annotated[
        bool,
        option("--trace-vram", "Print each allocation on the GPU, and the free memory, to stderr."),
    ] = False

    def extend(self, config: RunConfig, sources: OptionSources) -> RunConfig:
        """Returns `config` with these options; raises UsageError for contradictory ones."""
        disabled = tuple(dict.fromkeys(chain.from_iterable(self.disable or ())))
        if config.instruction_set and set(disabled).intersection(_INSTRUCTIONS):
            sources.raise_conflict("disable", "isa", "both choose the CPU kernels")
        experts = config.experts
        if "prefetch" in disabled:
            if experts.predictor is not None:
                sources.raise_conflict("disable", "moe_predictor", "predictions are for prefetch")
            experts = replace(experts, prefetch=False)
        return replace(config, disabled=disabled, trace_vram=self.trace_vram, experts=experts)
