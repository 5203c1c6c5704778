"""How options were set, what one of them says of others, and which contradict each other."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import typer
from msgspec.structs import replace

from sharpi.cli.command import given_variable
from sharpi.cli.output.terminal import print_note
from sharpi.errors import UsageError
from sharpi.settings import USUAL_DRAFTS, ExpertConfig, RunConfig, SpeculationConfig
from sharpi.settings.speculation import KINDS
from sharpi.units import plural


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
        """Returns the variable that set the option, or else its long flag, `--no-` for off."""
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
# Whether two options contradict each other, their parameters, and why.
_Conflict = tuple[bool, str, str, str]
_STASH = ("moe_paged_stash_page_size", "moe_paged_stash_gpu_factor", "moe_paged_stash_cpu_factor")


def complete(context: typer.Context, config: RunConfig, model: Path) -> RunConfig:
    """Returns the settings for running `model`; raises UsageError if some contradict others."""
    sources, config = OptionSources(context), replace(config, model=model)
    for is_so, first, second, reason in (*_of_gpus(config), *_of_experts(config, sources)):
        if is_so:
            sources.raise_conflict(first, second, reason)
    _refuse_files(config, sources)
    most = max(len(config.vrams), len(config.tensor_split))
    config = replace(
        config,
        gpus=config.gpus or (tuple(range(most)) if most > 1 else ()),
        tensor_split=config.tensor_split if len(config.tensor_split) > 1 else (),
        experts=_with_experts(config, sources),
        speculation=_with_drafts(config.speculation, sources, context.info_name or ""),
    )
    return _with_cluster(config, sources, joins=context.info_name == "join")


def _of_gpus(config: RunConfig) -> Iterator[_Conflict]:
    """Yields what may contradict each other of the options for GPUs; the longest list counts."""
    sizes, shares, gpus = len(config.vrams), len(config.tensor_split), len(config.gpus)
    yield bool(config.cpu_moe and config.num_cpu_moe), "cpu_moe", "n_cpu_moe", "both place experts"
    needs_gpu = {"vram": config.vram, "gpu_layers": config.gpu_layers, "tensor_split": shares}
    for name, value in needs_gpu.items():
        yield config.device == "cpu" and bool(value), "device", name, "the other needs a GPU"
    several = bool(gpus) and 1 < sizes != gpus
    yield several, "device", "vram", f"{sizes} sizes for {plural(gpus, 'GPU')}"
    yield 0 < gpus < shares, "device", "tensor_split", f"{shares} shares for {plural(gpus, 'GPU')}"
    yield 1 < sizes < shares, "vram", "tensor_split", f"{shares} shares for {plural(sizes, 'GPU')}"


def _of_experts(config: RunConfig, sources: OptionSources) -> Iterator[_Conflict]:
    """Yields what may contradict each other of the options for experts and kernels."""
    experts, ids = config.experts, config.experts.resident_ids
    fixed = "moe_resident" if experts.resident is not None else "moe_resident_ids"
    is_fixed = experts.resident is not None or ids is not None
    not_static = experts.policy not in (None, "static")
    yield is_fixed and not_static, fixed, "moe_policy", "only static keeps a fixed set"
    two = ids is not None and experts.resident not in (None, "ids")
    yield two, "moe_resident", "moe_resident_ids", "each fixes the set"
    other = fixed if experts.policy is None else "moe_policy"
    is_plain = is_fixed if experts.policy is None else not experts.policy.startswith("learned")
    needs = "it needs a learned policy"
    yield is_plain and experts.load_budget is not None, "moe_load_budget", other, needs
    yield is_plain and experts.predictor == "learned", "moe_predictor", other, needs
    why = "either the CPU computes all experts, or some cross the bus"
    yield config.cpu_moe and experts.miss == "bus", "cpu_moe", "moe_miss", why
    is_off = not experts.paged_stash and sources.has("moe_paged_stash")
    for name in _STASH:
        yield is_off and sources.has(name), "moe_paged_stash", name, "the other sets up the stash"
    kernels = bool(config.instruction_set and {"vnni", "vbmi"}.intersection(config.disabled))
    yield kernels, "disable", "isa", "both choose the CPU kernels"
    no_prefetch = not experts.prefetch or "prefetch" in config.disabled
    switch = "disable" if experts.prefetch else "moe_predict_prefetch"
    predicts = experts.predictor is not None
    yield no_prefetch and predicts, switch, "moe_predictor", "predictions are for prefetch"


def _with_experts(config: RunConfig, sources: OptionSources) -> ExpertConfig:
    experts, ids = config.experts, config.experts.resident_ids
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
    resident = experts.resident or ("ids" if ids is not None else None)
    return replace(
        experts,
        policy=experts.policy or ("static" if resident else None),
        resident=resident,
        prefetch=experts.prefetch and "prefetch" not in config.disabled,
    )


def _refuse_files(config: RunConfig, sources: OptionSources) -> None:
    """Raises UsageError for a file that cannot be written, or that would replace another."""
    experts, written = config.experts, dict[Path, str]()
    names = ("expert_stats", "moe_trace", "moe_profile")
    for name, path in zip(names, (experts.stats, experts.trace, experts.profile), strict=True):
        if path is not None:
            refuse_output(sources.name(name), path, [config.model])
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


def refuse_output(name: str, output: Path, inputs: Sequence[Path]) -> None:
    """Raises UsageError if `output`, a file of option `name`, is an input or cannot be written."""
    for path in inputs:
        with suppress(OSError):  # one of them does not exist, so they differ
            if output.samefile(path):
                raise UsageError(
                    f"{name} {output} would replace the input {path}; name another file"
                )
    if reason := _obstacle(output):
        raise UsageError(f"{name}: cannot write {output} ({reason}); name another file")


def _obstacle(output: Path) -> str | None:
    """Returns why a file cannot be written; None if it can."""
    try:
        target = Path(os.path.realpath(output))
        if target.is_dir():
            return "it is a folder"
        is_special = target.exists() and not target.is_file()
        if not target.parent.is_dir():
            return f"there is no folder {target.parent}"
        if not os.access(target if is_special else target.parent, os.W_OK):
            return "permission denied"
        target.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror
    return None
