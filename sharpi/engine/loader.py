"""Loads a model: the one place that connects file, tokenizer, weights and engine."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sharpi.config import ExpertConfig, RunConfig
from sharpi.device.device import Device
from sharpi.device.gpu import open_gpu
from sharpi.engine.backends.cpu_part import CpuPart
from sharpi.engine.backends.model_part import ModelPart
from sharpi.engine.backends.parts import gpu_tier_of, keys_by_layer, make_parts
from sharpi.engine.engine import Engine
from sharpi.engine.head_choice import choose_head, known_to_pay, where_keys_are, why_no_head
from sharpi.engine.kv.kv_cut import on_cpu
from sharpi.engine.placement.choice import GpuChoice, OpenGpu
from sharpi.engine.placement.copies import weight_copies
from sharpi.engine.placement.expert_use import expert_use
from sharpi.engine.placement.idle_flags import notes_on_given
from sharpi.engine.placement.slot_requests import may_map, ram_request
from sharpi.engine.prompt_cache.opening import open_cache_folder, open_prompt_cache
from sharpi.engine.records.expert_records import ExpertRecords
from sharpi.engine.runner import Runner
from sharpi.engine.settings import EngineSettings, decide
from sharpi.experts.profile import ExpertProfile, load_profile
from sharpi.gguf.file_error import file_error
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.hardware.info import probe_hardware
from sharpi.model.config import ModelConfig, read_config
from sharpi.model.extra_tensors import notes_on_extra
from sharpi.model.rope_override import with_rope
from sharpi.model.weights import ModelWeights, load_weights
from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.slot_notes import slot_notes
from sharpi.tokenizer.chat_template import chat_format
from sharpi.tokenizer.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from sharpi.engine.backends.draft_head import DraftHead
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.engine.backends.gpu.slots import GpuSlots
    from sharpi.engine.cluster.sharing import Sharing
    from sharpi.engine.draft_model import DraftModel

Progress = Callable[[str, float], None]


def load_engine(
    config: RunConfig,
    on_progress: Progress | None = None,
    open_device: OpenGpu = open_gpu,
    sharing: "Sharing | None" = None,
) -> Engine:
    """Loads a model; raises SharpiError before anything large is allocated.

    `open_device` opens the GPU, if one is to be used. With `sharing` this process runs some of the
    layers, and other ranks the others.
    """
    report = on_progress or (lambda stage, fraction: None)
    report("reading the file", 0.0)
    file = open_gguf(config.model, may_lack_parts=sharing is not None)
    try:
        return _load(file, config, report, open_device, sharing)
    except BaseException:
        file.close()
        raise


def _load(
    file: GgufFile,
    config: RunConfig,
    report: Progress,
    open_device: OpenGpu,
    sharing: "Sharing | None",
) -> Engine:
    folder = open_cache_folder(config)
    if sharing is not None:
        file = sharing.complete(file)
    model_config = with_rope(read_config(file), config.rope)
    hardware = probe_hardware(config.instruction_set)
    if sharing is not None:
        config = replace(config, device="cpu")
    config, keep_notes = on_cpu(config)
    gpu = GpuChoice(config, open_device)
    has_gpu, is_shared = bool(gpu.devices), sharing is not None
    config = known_to_pay(config, has_gpu=has_gpu, is_shared=is_shared)
    shared = (file, model_config)  # all that several ranks have in common
    file, model_config, config, head_notes = choose_head(
        file, model_config, config,
        why_no_head(config, is_follower=sharing is not None and not sharing.is_first),
        keys_elsewhere=where_keys_are(config, has_gpu=has_gpu, is_shared=is_shared),
    )  # fmt: skip
    settings = decide(config, file, model_config, hardware)
    if sharing is not None:
        settings = sharing.agree(config, *shared, settings, hardware)
    layers = None if sharing is None else sharing.layers
    model_config = model_config.for_context(settings.context_size)
    placement, plan, warning = gpu.place(file, model_config, settings, hardware, layers)
    profile = _profile(config, model_config)
    copies = weight_copies(file, config, model_config, plan)
    if copies is not None:
        file = file.with_data(copies.tensors)
    # Names every fault of the tensors before anything large is read.
    weights = load_weights(file, model_config)
    report("building the tokenizer", 0.1)
    tokenizer = load_tokenizer(file.metadata)
    _refuse_tokens_without_row(file, tokenizer, weights)
    if copies is not None:
        copies.read(lambda fraction: report("reading the weights", 0.2 + 0.5 * fraction))
    tier: ExpertTier | None = None
    if plan is not None and not plan.is_mapped:
        report("making room for experts", 0.7)
        tier = _expert_tier(
            file, model_config, plan, ram_request(config, plan), profile,
            may_map=sharing is None and may_map(config, plan),
        )  # fmt: skip
    report("preparing the engine", 0.8)
    records = _records(config, file, model_config, placement.facts, tier, profile)
    keeps = records.keeps_router_logits
    slots: tuple[GpuSlots | None, ...] = ()
    slots_notes: tuple[str, ...] = ()
    if gpu.devices and plan is not None:
        slots, slots_notes = _gpu_slots(
            gpu.devices[0], config, model_config, weights, plan, profile
        )
    ram_policy = None if tier is None else tier.policy.settings
    parts = make_parts(
        gpu.devices, plan, model_config, weights, settings, tier, slots, layers,
        keeps_router_logits=keeps,
    )  # fmt: skip
    if sharing is not None:
        from sharpi.engine.cluster.lending_round import LoadedModel

        loaded = LoadedModel(file, model_config, weights, settings, plan, tier, records)
        parts = sharing.parts(parts, loaded)
    records.watch(gpu_tier_of(parts))
    has_states = bool(model_config.states)
    head = None
    if model_config.has_head:
        head = _head(file, model_config, weights, settings, parts, plan)
    runner = Runner(
        settings, weights.output.rows, parts, records, head, has_states=has_states,
        remote=sharing.remote if sharing else None,
    )  # fmt: skip
    gpu_name = gpu.description(plan)
    prompt_cache = open_prompt_cache(folder, config, file, model_config, settings, runner, gpu_name)
    draft_model = _draft_model(config, file, runner)
    report("ready", 1.0)
    return Engine(
        config=config,
        model_config=model_config,
        file=file,
        tokenizer=tokenizer,
        chat_format=chat_format(tokenizer),
        runner=runner,
        notes=(
            *tokenizer.notes,
            *notes_on_extra(weights.unused, model_config.num_layers),
            *settings.notes,
            *keep_notes,
            *head_notes,
            *gpu.notes,
            *(prompt_cache.opening_notes if prompt_cache else ()),
            *slots_notes,
            *(sharing.notes if sharing else ()),
            *_notes(plan, warning, is_limited=config.moe_slots is not None),
            *notes_on_given(
                config,
                lambda: expert_use(
                    config, model_config, plan, profile, next(filter(None, slots), None), ram_policy
                ),
            ),
        ),
        plan=plan,
        tier=tier,
        records=records,
        prompt_cache=prompt_cache,
        draft_model=draft_model,
        gpu_name=gpu_name,
    )


def _draft_model(config: RunConfig, file: GgufFile, runner: Runner) -> "DraftModel | None":
    """Loads the model that drafts, if there is one; raises UsageError for another vocabulary."""
    speculation = config.speculation
    if speculation.draft_model is None or not runner.max_drafts:
        return None
    from sharpi.engine.draft_model import DraftModel, check_vocabulary, draft_config

    engine = load_engine(draft_config(config, runner.context_size))
    try:
        check_vocabulary(file, engine.file)
    except BaseException:
        engine.close()
        raise
    return DraftModel(engine.runner, engine.close, runner.vocab_size, speculation.min_probability)


def _head(
    file: GgufFile,
    model: ModelConfig,
    weights: ModelWeights,
    settings: EngineSettings,
    parts: Sequence[ModelPart],
    plan: TierPlan | None,
) -> "DraftHead":
    """Builds the MTP head beside the model's part; imports its modules only if it is called."""
    from sharpi.engine.backends.head_experts import HeadExperts
    from sharpi.engine.backends.head_part import HeadPart

    on_cpu = [part for part in parts if isinstance(part, CpuPart)]
    pool = on_cpu[-1].pool if on_cpu else None
    if model.assistant is not None:
        from sharpi.engine.backends.assistant_part import AssistantPart

        return AssistantPart(model, weights, settings, pool, keys_by_layer(parts))
    experts = None
    if plan is not None and not plan.is_mapped and plan.layers[model.num_layers].num_experts:
        experts = HeadExperts(file, model, plan)
    return HeadPart(model, weights, settings, pool, experts)


def _gpu_slots(
    device: Device,
    config: RunConfig,
    model: ModelConfig,
    weights: ModelWeights,
    plan: TierPlan,
    profile: ExpertProfile | None,
) -> "tuple[tuple[GpuSlots | None, ...], tuple[str, ...]]":
    """Decides about the slots on each GPU; returns them and notes on what the driver refused.

    The first GPU, `device`, page-locks memory for all GPUs. The modules are imported here, since
    they are only needed with a GPU.
    """
    from sharpi.engine.backends.gpu.reach import find_reach
    from sharpi.engine.backends.gpu.slots import gpu_slots

    reach = find_reach(device, config, plan, weights)
    slots = tuple(
        gpu_slots(
            config.experts, model, plan, place, profile,
            is_reached=reach.reads_ram, can_ask=reach.can_ask, num_computed=config.num_cpu_moe,
        )
        for place in plan.gpus
    )  # fmt: skip
    return slots, reach.notes


def _expert_tier(
    file: GgufFile,
    model: ModelConfig,
    plan: TierPlan,
    asked: ExpertConfig,
    profile: ExpertProfile | None,
    *,
    may_map: bool,
) -> "ExpertTier":
    """Builds the slots in RAM; imports their modules only if it is called."""
    from sharpi.engine.backends.expert_tier import ExpertTier

    return ExpertTier(file, model, plan, asked, profile, may_map=may_map)


def _profile(config: RunConfig, model: ModelConfig) -> ExpertProfile | None:
    """Reads the expert uses of earlier runs, if there were any; raises StatsFileError."""
    if config.experts.profile is None:
        return None
    name = config.model.name
    return load_profile(config.experts.profile, name, model.num_layers, model.num_experts)


def _records(
    config: RunConfig,
    file: GgufFile,
    model: ModelConfig,
    facts: ModelFacts,
    tier: "ExpertTier | None",
    profile: ExpertProfile | None,
) -> ExpertRecords:
    layers = enumerate(facts.layers[: model.num_layers])
    sizes = {i: layer.expert_bytes or 0 for i, layer in layers if layer.num_experts}
    return ExpertRecords(
        config.experts, file.path.name, model, sizes, config.batch_size, tier, profile
    )


def _notes(plan: TierPlan | None, warning: str | None, *, is_limited: bool) -> tuple[str, ...]:
    if plan is None:
        return () if warning is None else (warning,)
    return (*slot_notes(plan, is_limited=is_limited), *plan.notes)


def _refuse_tokens_without_row(file: GgufFile, tokenizer: Tokenizer, weights: ModelWeights) -> None:
    """Refuses a tokenizer with ids beyond the output matrix: kernels do not check ids.

    More rows than tokens are usual, since matrices are padded.
    """
    rows = weights.output.rows
    if tokenizer.vocab_size > rows:
        raise file_error(
            file.path, f"corrupt: {tokenizer.vocab_size} tokens, but embeddings for only {rows}"
        )
