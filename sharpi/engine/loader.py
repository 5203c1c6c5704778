"""Loads a model: the one place that connects file, tokenizer, weights and engine."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sharpi.config import RunConfig
from sharpi.device.gpu import open_gpu
from sharpi.engine.backends.cpu_part import CpuPart
from sharpi.engine.backends.model_part import ModelPart
from sharpi.engine.backends.parts import gpu_tier_of, keys_by_layer, make_parts
from sharpi.engine.engine import Engine
from sharpi.engine.load_decisions import LoadDecisions, decide_load
from sharpi.engine.placement.choice import OpenGpu
from sharpi.engine.placement.placement import may_map, ram_request, weight_copies
from sharpi.engine.prompt_cache.arithmetic import arithmetic_of
from sharpi.engine.prompt_cache.cache_folder import CacheFolder
from sharpi.engine.prompt_cache.model_digest import ModelDigest
from sharpi.engine.prompt_cache.prompt_cache import ModelIdentity, PromptCache
from sharpi.engine.records.expert_records import ExpertRecords
from sharpi.engine.runner import Runner
from sharpi.gguf.file_error import file_error
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.model.extra_tensors import notes_on_extra
from sharpi.model.weights import ModelWeights, load_weights
from sharpi.tokenizer.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from sharpi.engine.backends.draft_head import DraftHead
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.engine.backends.gpu.slots import GpuSlots
    from sharpi.engine.cluster.cluster_loader import ClusterLoader
    from sharpi.engine.draft_model import DraftModel

Progress = Callable[[str, float], None]


def load_engine(
    config: RunConfig,
    on_progress: Progress | None = None,
    open_device: OpenGpu = open_gpu,
    cluster_loader: "ClusterLoader | None" = None,
) -> Engine:
    """Loads a model; raises SharpiError if it cannot, mostly before large allocations.

    `open_device` opens the GPU, if one is to be used. With `cluster_loader` this process runs some
    of the layers, and other ranks run the other layers.
    """
    report = on_progress or (lambda stage, fraction: None)
    report("reading the file", 0.0)
    file = open_gguf(config.model, allows_missing_parts=cluster_loader is not None)
    try:
        return _load(file, config, report, open_device, cluster_loader)
    except BaseException:
        file.close()
        raise


def _load(
    file: GgufFile,
    config: RunConfig,
    report: Progress,
    open_device: OpenGpu,
    cluster_loader: "ClusterLoader | None",
) -> Engine:
    folder = _cache_folder(config)  # before anything large is read
    decided = decide_load(file, config, open_device, cluster_loader)
    file, weights, tokenizer = _read(decided, report)
    decided = replace(decided, file=file)
    tier = _expert_tier(decided, report, is_shared=cluster_loader is not None)
    report("preparing the engine", 0.8)
    records = _records(decided, tier)
    slots, slots_notes = _gpu_slots(decided, weights)
    parts = _parts(decided, weights, tier, slots, records, cluster_loader)
    records.watch(gpu_tier_of(parts))
    runner = _runner(decided, weights, parts, records, cluster_loader)
    prompt_cache = None if folder is None else _prompt_cache(folder, decided, runner)
    draft_model = _draft_model(decided, runner)
    report("ready", 1.0)
    return Engine(
        decided,
        tokenizer,
        runner,
        notes=(
            *tokenizer.notes,
            *notes_on_extra(weights.unused, decided.model.num_layers),
            *decided.notes,
            *decided.gpu.notes,
            *(prompt_cache.opening_notes if prompt_cache else ()),
            *slots_notes,
            *(cluster_loader.notes if cluster_loader else ()),
            *decided.plan_notes,
        ),
        tier=tier,
        records=records,
        prompt_cache=prompt_cache,
        draft_model=draft_model,
    )


def _cache_folder(config: RunConfig) -> CacheFolder | None:
    """Opens the prompt cache's folder that the user named, if any; raises UsageError."""
    if config.prompt_cache is None:
        return None
    return CacheFolder(config.prompt_cache, config.prompt_cache_bytes)


def _prompt_cache(folder: CacheFolder, decided: LoadDecisions, runner: Runner) -> PromptCache:
    config, file, settings = decided.config, decided.file, decided.settings
    identity = ModelIdentity(
        digest=ModelDigest(folder.path, file.parts),
        arithmetic=arithmetic_of(config, settings, decided.model, decided.gpu_name),
        about={"model": file.path.name, "kv_type": str(settings.kv_types)},
    )
    return PromptCache(folder, runner.memory, identity)


def _read(decided: LoadDecisions, report: Progress) -> tuple[GgufFile, ModelWeights, Tokenizer]:
    """Returns the file, its weights and its tokenizer; copies weights to memory where decided."""
    file = decided.file
    copies = weight_copies(file, decided.config, decided.model, decided.plan)
    if copies is not None:
        file = file.with_data(copies.tensors)
    # Names every fault of the tensors before anything large is read.
    weights = load_weights(file, decided.model)
    report("building the tokenizer", 0.1)
    tokenizer = load_tokenizer(file.metadata)
    _refuse_tokens_without_row(file, tokenizer, weights)
    if copies is not None:
        copies.read(lambda fraction: report("reading the weights", 0.2 + 0.5 * fraction))
    return file, weights, tokenizer


def _parts(
    decided: LoadDecisions,
    weights: ModelWeights,
    tier: "ExpertTier | None",
    slots: "tuple[GpuSlots | None, ...]",
    records: ExpertRecords,
    cluster_loader: "ClusterLoader | None",
) -> Sequence[ModelPart]:
    parts = make_parts(
        decided.gpu.devices, decided.plan, decided.model, weights, decided.settings, tier, slots,
        decided.layers, keeps_router_logits=records.keeps_router_logits,
    )  # fmt: skip
    if cluster_loader is None:
        return parts
    from sharpi.engine.cluster.lending_round import LoadedModel

    loaded = LoadedModel(
        decided.file, decided.model, weights, decided.settings, decided.plan, tier, records
    )
    return cluster_loader.parts(parts, loaded)


def _runner(
    decided: LoadDecisions,
    weights: ModelWeights,
    parts: Sequence[ModelPart],
    records: ExpertRecords,
    cluster_loader: "ClusterLoader | None",
) -> Runner:
    return Runner(
        decided.settings,
        weights.output.rows,
        parts,
        records,
        _head(decided, weights, parts) if decided.model.has_head else None,
        has_states=bool(decided.model.states),
        remote=cluster_loader.remote if cluster_loader else None,
    )


def _draft_model(decided: LoadDecisions, runner: Runner) -> "DraftModel | None":
    """Loads the draft model, if there is one; raises UsageError for another vocabulary."""
    config, speculation = decided.config, decided.config.speculation
    if speculation.draft_model is None or not runner.settings.max_drafts:
        return None
    from sharpi.engine.draft_model import DraftModel, check_vocabulary, draft_config

    engine = load_engine(draft_config(config, runner.context_size))
    try:
        check_vocabulary(decided.file, engine.file)
    except BaseException:
        engine.close()
        raise
    return DraftModel(engine.runner, engine.close, runner.vocab_size, speculation.min_probability)


def _head(decided: LoadDecisions, weights: ModelWeights, parts: Sequence[ModelPart]) -> "DraftHead":
    """Builds the MTP head, on the threads of the last part on the CPU, if there is one.

    The head's modules are only imported here.
    """
    from sharpi.engine.backends.head_experts import HeadExperts
    from sharpi.engine.backends.head_part import HeadPart

    model, settings, plan = decided.model, decided.settings, decided.plan
    on_cpu = [part for part in parts if isinstance(part, CpuPart)]
    pool = on_cpu[-1].pool if on_cpu else None
    if model.assistant is not None:
        from sharpi.engine.backends.assistant_part import AssistantPart

        return AssistantPart(model, weights, settings, pool, keys_by_layer(parts))
    experts = None
    if plan is not None and not plan.is_mapped and plan.layers[model.num_layers].num_experts:
        experts = HeadExperts(decided.file, model, plan)
    return HeadPart(model, weights, settings, pool, experts)


def _gpu_slots(
    decided: LoadDecisions, weights: ModelWeights
) -> "tuple[tuple[GpuSlots | None, ...], tuple[str, ...]]":
    """Decides about the slots on each GPU; returns them and notes on what the driver refused.

    The first GPU page-locks memory for all GPUs. The modules are imported here, since they are only
    needed with a GPU.
    """
    plan, config = decided.plan, decided.config
    if plan is None or not decided.gpu.devices:
        return (), ()
    from sharpi.engine.backends.gpu.miss_capabilities import find_miss_capabilities
    from sharpi.engine.backends.gpu.slots import gpu_slots

    found = find_miss_capabilities(decided.gpu.devices[0], config, plan, weights)
    slots = tuple(
        gpu_slots(
            config.experts, decided.model, plan, place, decided.profile,
            reads_ram=found.reads_ram, can_use_cpu=found.can_use_cpu,
            num_computed=config.num_cpu_moe,
        )
        for place in plan.gpus
    )  # fmt: skip
    return slots, found.notes


def _expert_tier(
    decided: LoadDecisions, report: Progress, *, is_shared: bool
) -> "ExpertTier | None":
    """Builds the slots in RAM; None if the plan needs none.

    Their modules are only imported here.
    """
    plan, config = decided.plan, decided.config
    if plan is None or plan.is_mapped:
        return None
    from sharpi.engine.backends.expert_tier import ExpertTier

    report("making room for experts", 0.7)
    return ExpertTier(
        decided.file, decided.model, plan, ram_request(config, plan), decided.profile,
        may_map=not is_shared and may_map(config, plan),
    )  # fmt: skip


def _records(decided: LoadDecisions, tier: "ExpertTier | None") -> ExpertRecords:
    config, model, name = decided.config, decided.model, decided.file.path.name
    layers = enumerate(decided.facts.layers[: model.num_layers])
    sizes = {i: layer.expert_bytes or 0 for i, layer in layers if layer.num_experts}
    return ExpertRecords(
        config.experts, name, model, sizes, config.batch_size, tier, decided.profile
    )


def _refuse_tokens_without_row(file: GgufFile, tokenizer: Tokenizer, weights: ModelWeights) -> None:
    """Refuses a tokenizer with ids beyond the output matrix: kernels do not check ids.

    More rows than tokens are usual, since matrices are padded.
    """
    rows = weights.output.rows
    if tokenizer.vocab_size > rows:
        raise file_error(
            file.path, f"corrupt: {tokenizer.vocab_size} tokens, but embeddings for only {rows}"
        )
