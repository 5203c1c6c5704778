"""How options were set, what one of them says of others, and which contradict each other."""

import os
from pathlib import Path
from typing import Any, NoReturn

import typer
from msgspec.structs import replace

from sharpi.cli.command import given_variable
from sharpi.cli.output.output_files import refuse_to_replace, refuse_unwritable
from sharpi.cli.output.terminal import print_note
from sharpi.errors import UsageError
from sharpi.settings import USUAL_DRAFTS, ExpertConfig, RunConfig, SpeculationConfig
from sharpi.settings.speculation import KINDS


class OptionSources:
    """The source of each option value of a command: flag, environment variable or default."""

    def __init__(self, context: typer.Context) -> None:
        self._context = context
        self._options: dict[str, Any] = {each.name or "": each for each in context.command.params}

    def by_flag(self, parameter: str) -> bool:
        """Returns whether a flag set the option."""
        return self._source(parameter) == "COMMANDLINE"

    def by_variable(self, parameter: str) -> bool:
        """Returns whether an environment variable set the option, and no flag did."""
        return self._source(parameter) == "ENVIRONMENT"

    def has(self, parameter: str) -> bool:
        """Returns whether a flag or an environment variable set the option."""
        return self.by_flag(parameter) or self.by_variable(parameter)

    def name(self, parameter: str) -> str:
        """Returns the environment variable that set the option, or else its long flag.

        For a switch that is off, the flag is its `--no-` form.
        """
        option = self._options[parameter]
        if self.by_variable(parameter):
            return given_variable(option)
        is_off = self._context.params[parameter] is False
        names = (is_off and option.secondary_opts) or option.opts
        return str(next(name for name in names if name.startswith("--")))

    def raise_conflict(self, first: str, second: str, reason: str) -> NoReturn:
        """Raises UsageError, which names two contradictory options and the reason."""
        names = f"{self.name(first)} and {self.name(second)}"
        raise UsageError(f"{names} contradict each other: {reason}; keep one")

    def _source(self, parameter: str) -> str | None:
        source = self._context.get_parameter_source(parameter)
        return None if source is None else source.name


_OF_GIVEN_TOKENS = ("bench", "perplexity", "logits")  # commands that generate no text
_USUAL_FIXED = 3  # drafts, where they are not chosen by what they gain; llama.cpp's default
_MOST_EXPERTS = 10**6  # ids have at most six digits; the model may have fewer experts
_STASH = ("moe_paged_stash_page_size", "moe_paged_stash_gpu_factor", "moe_paged_stash_cpu_factor")


def complete(context: typer.Context, config: RunConfig, model: Path) -> RunConfig:
    """Returns the settings for running `model`; raises UsageError if some contradict others."""
    sources = OptionSources(context)
    config = _with_gpus(replace(config, model=model), sources)
    experts = _with_experts(config, sources)
    drafts = _with_drafts(config.speculation, sources, context.info_name or "")
    config = replace(config, experts=experts, speculation=drafts)
    return _with_cluster(config, sources, joins=context.info_name == "join")


def _with_gpus(config: RunConfig, sources: OptionSources) -> RunConfig:
    """Counts the GPUs; without --device, the longer of --vram and --tensor-split does."""
    vrams, shares, count = config.vrams, config.tensor_split, len(config.gpus)
    if config.cpu_moe and config.num_cpu_moe:
        sources.raise_conflict("cpu_moe", "n_cpu_moe", "both place the experts")
    needs_gpu = {
        "vram": config.vram,
        "gpu_layers": config.gpu_layers,
        "tensor_split": shares,
    }
    other = next((name for name, value in needs_gpu.items() if value), None)
    if config.device == "cpu" and other is not None:
        sources.raise_conflict("device", other, "the other needs a GPU")
    if count and 1 < len(vrams) != count:
        sources.raise_conflict("device", "vram", f"{len(vrams)} sizes for {_gpus(count)}")
    if count and len(shares) > count:
        sources.raise_conflict("device", "tensor_split", f"{len(shares)} shares for {_gpus(count)}")
    if 1 < len(vrams) < len(shares):
        reason = f"{len(shares)} shares for {_gpus(len(vrams))}"
        sources.raise_conflict("vram", "tensor_split", reason)
    most = max(len(vrams), len(shares))
    return replace(
        config,
        gpus=config.gpus or (tuple(range(most)) if most > 1 else ()),
        tensor_split=shares if len(shares) > 1 else (),
    )


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _with_experts(config: RunConfig, sources: OptionSources) -> ExpertConfig:
    experts = config.experts
    _refuse_sets(experts, sources)
    _refuse_unlearned(experts, sources)
    _refuse_misses(config, sources)
    _refuse_files(config, sources)
    if config.instruction_set and {"vnni", "vbmi"}.intersection(config.disabled):
        sources.raise_conflict("disable", "isa", "both choose the CPU kernels")
    is_off = "prefetch" in config.disabled
    if experts.predictor is not None and (is_off or not experts.prefetch):
        switch = "disable" if experts.prefetch else "moe_predict_prefetch"
        sources.raise_conflict(switch, "moe_predictor", "predictions are for prefetch")
    resident = experts.resident or ("ids" if experts.resident_ids is not None else None)
    return replace(
        experts,
        policy=experts.policy or ("static" if resident else None),
        resident=resident,
        prefetch=experts.prefetch and not is_off,
    )


def _refuse_sets(experts: ExpertConfig, sources: OptionSources) -> None:
    """Raises UsageError if options of a fixed set contradict each other or the policy."""
    name, ids = _set_name(experts), experts.resident_ids
    if name is not None and experts.policy not in (None, "static"):
        sources.raise_conflict(name, "moe_policy", "only static keeps a fixed set")
    if ids is not None and experts.resident not in (None, "ids"):
        sources.raise_conflict("moe_resident", "moe_resident_ids", "each fixes the set")
    if experts.resident == "ids" and ids is None:
        raise UsageError(
            f"{sources.name('moe_resident')} ids needs --moe-resident-ids, as in 1,2,5 or 0-7"
        )
    if ids is not None:
        from sharpi.experts.policy_choice import parse_ids

        try:
            parse_ids(ids, _MOST_EXPERTS)
        except UsageError as error:
            raise UsageError(f"{sources.name('moe_resident_ids')}: {error}") from None


def _set_name(experts: ExpertConfig) -> str | None:
    """Returns the parameter that requests a fixed set of experts; None without one."""
    if experts.resident is not None:
        return "moe_resident"
    return "moe_resident_ids" if experts.resident_ids is not None else None


def _refuse_unlearned(experts: ExpertConfig, sources: OptionSources) -> None:
    """Raises UsageError for an option of the learned policies if another policy is chosen."""
    other = _set_name(experts)
    if experts.policy is not None:
        other = None if experts.policy.startswith("learned") else "moe_policy"
    if other is not None and experts.load_budget is not None:
        sources.raise_conflict("moe_load_budget", other, "it needs a learned policy")
    if other is not None and experts.predictor == "learned":
        sources.raise_conflict("moe_predictor", other, "it needs a learned policy")


def _refuse_misses(config: RunConfig, sources: OptionSources) -> None:
    """Raises UsageError for contradictory options of misses; default values never contradict."""
    experts = config.experts
    if config.cpu_moe and experts.miss == "bus":
        sources.raise_conflict(
            "cpu_moe", "moe_miss", "either the CPU computes all experts, or some cross the bus"
        )
    if not experts.paged_stash and sources.has("moe_paged_stash"):
        for name in filter(sources.has, _STASH):
            sources.raise_conflict("moe_paged_stash", name, "the other sets up the stash")


def _refuse_files(config: RunConfig, sources: OptionSources) -> None:
    """Raises UsageError for a file that cannot be written, or that would replace another."""
    experts, written = config.experts, dict[Path, str]()
    files = {
        "expert_stats": experts.stats,
        "moe_trace": experts.trace,
        "moe_profile": experts.profile,
    }
    for name, path in files.items():
        if path is not None:
            refuse_to_replace(sources.name(name), path, [config.model])
            refuse_unwritable(sources.name(name), path)
            if path in written:
                sources.raise_conflict(written[path], name, f"both write {path}")
            written[path] = name


def _with_drafts(
    drafts: SpeculationConfig, sources: OptionSources, command: str
) -> SpeculationConfig:
    """Chooses the kinds that auto includes, and how many drafts are checked."""
    if drafts.min_drafts > (drafts.max_drafts if drafts.max_drafts is not None else 99):
        reason = "the first is the larger one"
        sources.raise_conflict("spec_draft_n_min", "spec_draft_n_max", reason)
    has_type, has_model = sources.has("spec_type"), drafts.draft_model is not None
    if (drafts.is_auto and not drafts.kinds) or not has_type:
        kinds = KINDS if has_model else USUAL_DRAFTS.kinds
        drafts = replace(drafts, kinds=kinds, is_auto=True)
    if "draft" in drafts.kinds and not has_model:
        raise UsageError("--spec-type draft needs the file of --spec-draft-model")
    if drafts.max_drafts is None and drafts.kinds and not drafts.is_auto:
        drafts = replace(drafts, max_drafts=_USUAL_FIXED)
    drafts = replace(drafts, is_default=not has_type and not has_model)
    if not drafts.is_on or command not in _OF_GIVEN_TOKENS:
        return drafts
    if drafts.is_default:
        return SpeculationConfig()
    if command != "bench":
        print_note(f"drafts have no effect on {command}, whose tokens are given")
    return drafts


def _with_cluster(config: RunConfig, sources: OptionSources, *, joins: bool) -> RunConfig:
    """Keeps the group of --hosts, of torchrun if it started the process, or of `sharpi join`."""
    asked = config.cluster
    if asked is None:
        return config
    if "RANK" in os.environ:
        from sharpi.cluster.rendezvous import own_gpu, torchrun_rendezvous

        if torchrun_rendezvous() is not None:
            if asked.hosts:
                raise UsageError("--hosts and torchrun both say which machines there are; keep one")
            return replace(config, gpus=config.gpus or own_gpu())
    if asked.hosts or joins:
        return config
    if sources.by_flag("link") or sources.by_flag("insecure_link"):
        raise UsageError("--link and --insecure-link are of use with --hosts only")
    return replace(config, cluster=None)
