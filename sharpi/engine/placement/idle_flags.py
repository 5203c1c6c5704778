"""The table of flags about experts that have no effect on a model as it was loaded, and why.

A flag that asks for what happens anyway (`--no-...`, 0, auto) needs no note. Every other given flag
is looked up in this table; the note to the user is the reason of the first row that applies.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from sharpi.config import ExpertConfig, RunConfig
from sharpi.engine.placement.expert_use import ExpertUse
from sharpi.experts.policy_settings import POLICIES
from sharpi.experts.static_set import parse_ids

WARM_PIN = ("moe_warmpin", "moe_warmpin_after")
PREFETCH = ("moe_predict_prefetch", "moe_predictor")
SET = ("moe_resident", "moe_resident_ids")
POLICY = (
    "moe_policy", "moe_load_budget", *WARM_PIN, *PREFETCH, *SET, "moe_warmup_tokens",
)  # fmt: skip
STASH_SIZES = (
    "moe_paged_stash_page_size", "moe_paged_stash_gpu_factor", "moe_paged_stash_cpu_factor",
)  # fmt: skip
STASH = ("moe_paged_stash", *STASH_SIZES)
GPU = ("cpu_moe", "n_cpu_moe", "moe_miss", "moe_capacity_factor", *STASH)
DEBUG = ("disable", "trace_vram")
OF_LAYERS = ("gpu_layers", "tensor_split")  # which of the layers are on GPUs
FLAGS = ("moe_slots", "trace_moe", *POLICY, *GPU)  # all that the table is about

_BUDGETED = tuple(name for name, kind in POLICIES.items() if kind.has_budget)


class Row(Struct, frozen=True):
    """Flags that have no effect where the condition holds, and the reason in words."""

    flags: tuple[str, ...]
    is_idle: Callable[[RunConfig, ExpertUse], bool]
    reason: str | Callable[[RunConfig, ExpertUse], str]

    def text(self, config: RunConfig, use: ExpertUse) -> str:
        """Returns the reason that the flag has no effect, worded for this run."""
        return self.reason if isinstance(self.reason, str) else self.reason(config, use)


def notes_on_given(config: RunConfig, use: Callable[[], ExpertUse]) -> Iterator[str]:
    """Yields the notes of `idle_notes`; calls `use` only if a flag about experts was given."""
    if config.given.names:
        yield from idle_notes(config, use())


def idle_notes(config: RunConfig, use: ExpertUse) -> Iterator[str]:
    """Yields a note for each given flag that has no effect, or only a part of its effect."""
    for parameter, name in config.given.names:
        reason = why_idle(parameter, config, use)
        if reason is not None:
            yield f"{name} has no effect: {reason}"
        if parameter == "disable":
            yield from _idle_features(name, config, use)
    yield from _partly(config, use)


def why_idle(parameter: str, config: RunConfig, use: ExpertUse) -> str | None:
    """Returns why a flag has no effect; None if it has one, or asks for what happens anyway."""
    if parameter in FULFILLED and FULFILLED[parameter](config):
        return None
    rows = (row for row in ROWS if parameter in row.flags and row.is_idle(config, use))
    return next((row.text(config, use) for row in rows), None)


# The values of flags that are fulfilled where nothing is done.
FULFILLED: dict[str, Callable[[RunConfig], bool]] = {
    "moe_warmpin": lambda config: config.experts.warm_pin == 0,
    "moe_predict_prefetch": lambda config: not config.experts.prefetch,
    "moe_paged_stash": lambda config: not config.experts.paged_stash,
    "trace_vram": lambda config: not config.trace_vram,
    "moe_miss": lambda config: config.experts.miss == "auto",
    "cpu_moe": lambda config: not config.cpu_moe,
    "gpu_layers": lambda config: config.gpu_layers == 0,
    "n_cpu_moe": lambda config: config.num_cpu_moe == 0,
    "trace_moe": lambda config: not config.experts.trace_routes,
}


def _policies(use: ExpertUse) -> list[str]:
    return [slots.policy for slots in (use.gpu, use.ram) if slots is not None]


def _without_gpu(config: RunConfig, use: ExpertUse) -> bool:
    return use.first_gpu_layer is None


def _unasked_without_gpu(config: RunConfig, use: ExpertUse) -> bool:
    """Returns True if no GPU is used, and the command is `plan` or the user chose the CPU."""
    asks = config.given.command != "plan" and config.device != "cpu"
    return use.first_gpu_layer is None and not asks


def _all_on_gpu(config: RunConfig, use: ExpertUse) -> bool:
    return use.first_gpu_layer is not None and use.gpu is None


def _replaces_policy(config: RunConfig, use: ExpertUse) -> bool:
    return bool(use.slots and config.experts.policy and config.experts.policy != use.slots.policy)


def _replacement(config: RunConfig, use: ExpertUse) -> str:
    assert use.slots is not None
    used = use.slots.policy
    if use.is_unreached and use.slots is use.ram:
        return f"slots in RAM beside a GPU use {used}"
    if use.gpu is not None:
        return f"a GPU only loads what is missed, so {used} is used"
    return f"without prefetch nothing is loaded early, so {used} is used"


def _replaces_predictor(config: RunConfig, use: ExpertUse) -> bool:
    on_gpu = use.gpu is not None or use.is_unreached
    return on_gpu and config.experts.predictor not in (None, _predictor(use))


def _predictor(use: ExpertUse) -> str | None:
    """Returns the predictor for prefetches: to VRAM, or else from disk to RAM."""
    found = (slots.predictor for slots in (use.gpu, use.ram) if slots is not None)
    return next(filter(None, found), None)


def _predicting(config: RunConfig, use: ExpertUse) -> str:
    predictor = _predictor(use)
    if predictor is None:
        return "VRAM has no room to prefetch experts"
    return f"on a GPU the predictor is {predictor}"


def _misses_otherwise(config: RunConfig, use: ExpertUse) -> bool:
    return use.miss is not None and use.miss != config.experts.miss


ROWS = (
    Row(
        ("prompt_cache_size",),
        lambda config, use: config.prompt_cache is None,
        "--prompt-cache was not given",
    ),
    Row(
        ("prompt_cache",),
        lambda config, use: config.prompt_cache_bytes == 0,
        "--prompt-cache-size 0 keeps nothing",
    ),
    Row(("trace_vram",), _without_gpu, "no layer is on a GPU"),
    Row(OF_LAYERS, _unasked_without_gpu, "no layer is on a GPU"),
    Row(FLAGS, lambda config, use: not use.num_experts, "the model has no routed experts"),
    Row(GPU, _without_gpu, "no layer is on a GPU"),
    Row(
        ("n_cpu_moe",),
        lambda config, use: config.num_cpu_moe <= (use.first_gpu_layer or 0),
        "the CPU computes these layers anyway",
    ),
    Row(
        ("moe_miss", *POLICY),
        lambda config, use: use.slots is None and _all_on_gpu(config, use),
        "the GPU has all experts that it computes, and RAM the others",
    ),
    Row(("moe_miss", *STASH), _all_on_gpu, "the GPU has all experts that it computes"),
    Row(POLICY, lambda config, use: use.slots is None, "all experts are in RAM"),
    Row(
        SET,
        lambda config, use: use.is_unreached and use.slots is use.ram,
        "slots in RAM beside a GPU have no fixed set",
    ),
    Row(
        POLICY,
        lambda config, use: use.slots is not None and use.slots.all_fit,
        "every expert has a slot",
    ),
    Row(
        ("moe_slots",),
        lambda config, use: (config.moe_slots or 0) > use.num_experts,
        lambda config, use: f"a layer has only {use.num_experts} experts, and all have a slot",
    ),
    Row(("moe_policy",), _replaces_policy, _replacement),
    Row(
        ("moe_load_budget",),
        lambda config, use: use.slots is not None and use.slots.policy not in _BUDGETED,
        lambda config, use: f"{use.slots.policy if use.slots else ''} loads whatever is missed",
    ),
    Row(
        WARM_PIN,
        lambda config, use: all(policy == "static" for policy in _policies(use)),
        "a fixed set is never evicted",
    ),
    Row(
        WARM_PIN,
        lambda config, use: use.slots is not None and use.slots.num_slots == 1,
        "a layer's only slot stays free for the expert that is needed",
    ),
    Row(
        ("moe_warmpin_after",),
        lambda config, use: not any(s.warm_pin for s in (use.gpu, use.ram) if s is not None),
        "nothing is to be pinned; --moe-warmpin N says how many experts are",
    ),
    Row(
        PREFETCH,
        lambda config, use: use.only_prompts,
        "experts are predicted for decoded tokens, and here are only prompts",
    ),
    Row(
        PREFETCH,
        lambda config, use: use.is_unreached and (use.ram is None or not use.ram.predictor),
        "nothing is prefetched for a GPU that cannot read experts from RAM",
    ),
    Row(("moe_predictor",), _replaces_predictor, _predicting),
    Row(
        ("moe_warmup_tokens",),
        lambda config, use: config.experts.resident != "frequency",
        "only --moe-resident frequency counts tokens first",
    ),
    Row(
        ("moe_warmup_tokens",),
        lambda config, use: use.has_profile,
        "the profile says which experts are used most",
    ),
    Row(
        ("moe_miss",),
        _misses_otherwise,
        lambda config, use: f"the GPU cannot read experts from RAM here, so {use.miss} is used",
    ),
    Row(
        ("moe_capacity_factor",),
        lambda config, use: config.cpu_moe,
        "the CPU computes all experts",
    ),
    Row(
        STASH_SIZES,
        lambda config, use: not config.experts.paged_stash,
        "--moe-paged-stash was not given",
    ),
    Row(
        STASH,
        lambda config, use: not use.has_stash,
        "no prompt passes layer by layer: it fits one batch, or VRAM has no room for that",
    ),
)


_OF_GPUS = (
    *("graphs", "folding", "programmatic-launches", "fused-attention", "tensor-cores"),
    *("recurrent-chunks", "grouped-products"),
)


def _idle_features(name: str, config: RunConfig, use: ExpertUse) -> Iterator[str]:
    """Yields a note for each disabled feature that would not be in use anyway."""
    for feature in config.disabled:
        if feature in _OF_GPUS:
            reason = "no layer is on a GPU" if _without_gpu(config, use) else None
        elif feature == "prefetch":
            reason = why_idle("moe_predictor", config, use)
        else:
            reason = None if feature in use.cpu_features else "the CPU kernels do without it"
        if reason is not None:
            yield f"{name} {feature} has no effect: {reason}"


def _partly(config: RunConfig, use: ExpertUse) -> Iterator[str]:
    """Yields a note if --moe-resident-ids lists more experts than a layer has slots."""
    asked: ExpertConfig = config.experts
    if asked.resident_ids is None or use.slots is None or use.slots.all_fit:
        return
    ids, slots = parse_ids(asked.resident_ids, use.num_experts), use.slots.num_slots
    if len(ids) > slots:
        yield f"--moe-resident-ids: {len(ids)} ids for {slots} slots of a layer; the first are kept"
