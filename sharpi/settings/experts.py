"""The settings of expert slots, of misses on a GPU, and of what is recorded about experts."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import Struct

from sharpi.settings.option import Option, positive

Resident = Literal["first-n", "frequency", "ids"]
Miss = Literal["auto", "cpu", "stream", "load"]
Policy = Literal["slru", "lru", "lfru", "static", "learned-keep", "learned-prefetch"]
Predictor = Literal["last-token", "last-layer", "both", "frequency", "router", "learned"]

_MISSES = "Experts not on the GPU"


class ExpertConfig(Struct, frozen=True):
    """The settings for the experts of MoE models; most are idle if all experts are resident."""

    GROUP: ClassVar = "Experts"

    policy: Annotated[
        Policy | None,
        Option(
            "--moe-policy",
            "Policy that decides which expert is evicted.",
            shown_default="the measured best",
        ),
    ] = None
    load_budget: Annotated[
        float | None,
        Option(
            "--moe-load-budget",
            "Prefetches per token that learned-prefetch aims for.",
            "N",
            min=0,
            shown_default="a tenth of a token's lookups",
        ),
    ] = None
    warm_pin: Annotated[
        int | None,
        Option(
            "--moe-warmpin",
            "Pin the N most used experts of each layer, at most half of its slots; 0: none.",
            "N",
            min=0,
            shown_default="those of a token with lru and half the experts in slots, else 0",
        ),
    ] = None
    warm_pin_after: Annotated[
        int | None,
        Option(
            "--moe-warmpin-after",
            "Accesses to experts before they are pinned.",
            "N",
            min=0,
            shown_default="512",
        ),
    ] = None
    prefetch: Annotated[
        bool,
        Option(
            "--moe-predict-prefetch/--no-moe-predict-prefetch",
            "Prefetch the experts that will probably be used.",
        ),
    ] = True
    predictor: Annotated[
        Predictor | None,
        Option(
            "--moe-predictor",
            "Predictor of the experts to prefetch.",
            shown_default="the measured best",
        ),
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
        Option(
            "--moe-resident-ids",
            "The fixed set of every layer, as in 1,2,5 or 0-7.",
            "IDS",
        ),
    ] = None
    warmup_tokens: Annotated[
        int,
        Option(
            "--moe-warmup-tokens",
            "Tokens in which --moe-resident frequency counts uses; it begins with the first "
            "experts, and chooses anew after a 64th of them and at each doubling.",
            "N",
            min=1,
        ),
    ] = 4096
    miss: Annotated[
        Miss,
        Option(
            "--moe-miss",
            "cpu: the CPU computes them beside the GPU; stream: the GPU reads them over the bus; "
            "load: they are copied first; auto: the fastest, as measured while running.",
            group=_MISSES,
        ),
    ] = "auto"
    # The size of a GPU's buffers for a prompt's routed tokens, in multiples of tokens * experts per
    # token; None sizes them for the most tokens that can be routed.
    capacity_factor: Annotated[
        float | None,
        Option(
            "--moe-capacity-factor --moe-expert-rank-capacity-factor",
            "Room for the routed rows of a prompt's tokens; 1 is the average need. A batch that "
            "needs more runs again.",
            "F",
            parse=positive,
            shown_default="the worst case",
            group=_MISSES,
        ),
    ] = None
    paged_stash: Annotated[
        bool,
        Option(
            "--moe-paged-stash/--no-moe-paged-stash",
            "Keep activations of long prompts in pages.",
            group=_MISSES,
        ),
    ] = False
    stash_page_tokens: Annotated[
        int,
        Option(
            "--moe-paged-stash-page-size",
            "Tokens per page of the stash.",
            "N",
            min=1,
            group=_MISSES,
        ),
    ] = 64
    stash_gpu_factor: Annotated[
        float,
        Option(
            "--moe-paged-stash-gpu-factor --moe-paged-stash-buffer-size-factor-cuda",
            "Pages on the GPU, as a multiple of those expected to be needed.",
            "F",
            min=0,
            group=_MISSES,
        ),
    ] = 1.1
    stash_cpu_factor: Annotated[
        float,
        Option(
            "--moe-paged-stash-cpu-factor --moe-paged-stash-buffer-size-factor-cpu",
            "More pages in page-locked RAM, as a multiple of the same number.",
            "F",
            min=0,
            group=_MISSES,
        ),
    ] = 0.0
    # The files are written when the engine closes.
    stats: Annotated[
        Path | None,
        Option(
            "--expert-stats",
            "Write hits, loads, stalls and predictions at the end, as text or, if PATH ends in "
            ".json, as JSON; `sharpi stats` shows them.",
            "PATH",
        ),
    ] = None
    trace: Annotated[
        Path | None,
        Option(
            "--moe-trace",
            "Record the routes of every token, an .npz file for `sharpi simulate`.",
            "PATH",
        ),
    ] = None
    profile: Annotated[
        Path | None,
        Option(
            "--moe-profile",
            "Start with the expert uses in this file, if it exists, and save them at the end.",
            "PATH",
        ),
    ] = None
    trace_routes: Annotated[
        bool,
        Option("--trace-moe", "Print each token's routes, loads and pinned experts to stderr."),
    ] = False
