"""The settings of expert slots, of misses on a GPU, and of what is recorded about experts."""

from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from msgspec import Struct

from sharpi.settings.option import Option, choice, positive

Resident = Literal["first-n", "frequency", "ids"]
Miss = Literal["auto", "bus", "cpu"]
Policy = Literal["slru", "lru", "lfru", "static", "learned-keep", "learned-prefetch"]
Predictor = Literal["last-token", "last-layer", "both", "frequency", "router", "learned"]

_miss = partial(Option, group="Experts not on the GPU")


def miss_of(text: str) -> str:
    """Reads the value of `--moe-miss`; `load` and `stream` are older names of `bus`."""
    return choice("bus" if text in ("load", "stream") else text, get_args(Miss))


class ExpertConfig(Struct, frozen=True):
    """The settings for the experts of MoE models; most are idle if all experts are resident."""

    GROUP: ClassVar = "Experts"

    policy: Annotated[
        Policy | None,
        Option("--moe-policy", "Decides which expert is evicted.", default="the measured best"),
    ] = None
    load_budget: Annotated[
        float | None,
        Option(
            "--moe-load-budget N",
            "Prefetches per token that learned-prefetch aims for, while they pay.",
            min=0,
            default="a tenth of a token's lookups",
        ),
    ] = None
    warm_pin: Annotated[
        int | None,
        Option(
            "--moe-warmpin N",
            "Pin the N most used experts of each layer, at most half of its slots; 0: none.",
            min=0,
            default="those of a token with lru and half the experts in slots, else 0",
        ),
    ] = None
    warm_pin_after: Annotated[
        int | None,
        Option("--moe-warmpin-after N", "Expert accesses before the pin.", min=0, default="512"),
    ] = None
    prefetch: Annotated[
        bool,
        Option("--moe-predict-prefetch/--no-moe-predict-prefetch", "Prefetch probable experts."),
    ] = True
    predictor: Annotated[
        Predictor | None,
        Option("--moe-predictor", "Predicts experts to prefetch.", default="the measured best"),
    ] = None
    resident: Annotated[
        Resident | None,
        Option(
            "--moe-resident",
            "A fixed set of experts in the slots (policy static): the first ones, the most used, "
            "or those of --moe-resident-ids.",
        ),
    ] = None
    resident_ids: Annotated[
        str | None,
        Option("--moe-resident-ids IDS", "The fixed set of every layer, as in 1,2,5 or 0-7."),
    ] = None
    warmup_tokens: Annotated[
        int,
        Option(
            "--moe-warmup-tokens N",
            "Tokens in which --moe-resident frequency counts uses; it begins with the first "
            "experts, and chooses anew after a 64th of them and at each doubling.",
            min=1,
        ),
    ] = 4096
    miss: Annotated[
        Miss,
        _miss(
            "--moe-miss auto|bus|cpu",
            "bus: they are copied to the GPU; cpu: the CPU computes them beside it; auto: the "
            "faster of the two, as measured while running.",
            parse=miss_of,
        ),
    ] = "auto"
    # The size of a GPU's buffers for a prompt's routed tokens, in multiples of tokens * experts per
    # token; None sizes them for the most tokens that can be routed.
    capacity_factor: Annotated[
        float | None,
        _miss(
            "--moe-capacity-factor --moe-expert-rank-capacity-factor F",
            "Room for the routed rows of a full batch, as a share of all of them. A batch that "
            "needs more runs again.",
            parse=positive,
            default="the worst case",
        ),
    ] = None
    paged_stash: Annotated[
        bool, _miss("--moe-paged-stash/--no-moe-paged-stash", "Page activations of long prompts.")
    ] = False
    stash_page_tokens: Annotated[
        int, _miss("--moe-paged-stash-page-size N", "Tokens per page of the stash.", min=1)
    ] = 64
    stash_gpu_factor: Annotated[
        float,
        _miss(
            "--moe-paged-stash-gpu-factor --moe-paged-stash-buffer-size-factor-cuda F",
            "Pages on the GPU, as a multiple of those expected to be needed.",
            min=0,
        ),
    ] = 1.1
    stash_cpu_factor: Annotated[
        float,
        _miss(
            "--moe-paged-stash-cpu-factor --moe-paged-stash-buffer-size-factor-cpu F",
            "More pages in page-locked RAM, as a multiple of the same number.",
            min=0,
        ),
    ] = 0.0
    # The files are written when the engine closes.
    stats: Annotated[
        Path | None,
        Option(
            "--expert-stats PATH",
            "Write hits, loads, stalls and predictions at the end, as text or, if PATH ends in "
            ".json, as JSON; `sharpi stats` shows them.",
        ),
    ] = None
    trace: Annotated[
        Path | None,
        Option("--moe-trace PATH", "Record all routes, an .npz file for `sharpi simulate`."),
    ] = None
    profile: Annotated[
        Path | None,
        Option("--moe-profile PATH", "Start with this file's expert uses; save them at the end."),
    ] = None
    trace_routes: Annotated[
        bool,
        Option("--trace-moe", "Print each token's routes, loads and pinned experts to stderr."),
    ] = False
