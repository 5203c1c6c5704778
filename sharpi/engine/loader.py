"""Loads a model: the one place that connects file, tokenizer, weights and engine."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sharpi.device.gpu import open_gpu
from sharpi.engine.backends.parts import make_parts
from sharpi.engine.backends.recorded_part import PartModel
from sharpi.engine.engine import Engine
from sharpi.engine.features import Features, open_page_folder
from sharpi.engine.load_decisions import LayerShare, LoadDecisions, decide_load
from sharpi.engine.mapped_file import MappedFile
from sharpi.engine.placement.choice import OpenGpu, without_gpu
from sharpi.engine.placement.placement import may_map, ram_request, weight_copies
from sharpi.engine.runner import Runner
from sharpi.errors import DeviceError
from sharpi.gguf.cursor import file_error
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.model.weights import ModelWeights, load_weights, notes_on_extra
from sharpi.settings import RunConfig
from sharpi.system.process import print_running_note
from sharpi.tokenizer.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.engine.backends.gpu.miss_capabilities import MissCapabilities
    from sharpi.engine.backends.gpu.slots import GpuSlots

Progress = Callable[[str, float], None]


def load_engine(
    config: RunConfig,
    on_progress: Progress | None = None,
    open_device: OpenGpu = open_gpu,
    share: LayerShare | None = None,
) -> Engine:
    """Loads a model; raises SharpiError if it cannot, mostly before large allocations.

    `open_device` opens the GPU, if one is to be used. If the GPU fails while the model is loaded,
    the CPU computes, unless `config` insists. `share` says which layers this process runs;
    None stands for all of them.
    """
    try:
        return _opened(config, on_progress, open_device, share)
    except DeviceError as error:
        if config.device != "auto" or share is not None:
            raise
        fallen_back = f"the CPU computes, not the GPU: {error}"
    print_running_note(fallen_back)
    return _opened(without_gpu(config), on_progress, open_device, share)


def _opened(
    config: RunConfig,
    on_progress: Progress | None,
    open_device: OpenGpu,
    share: LayerShare | None,
) -> Engine:
    report = on_progress or (lambda stage, fraction: None)
    report("reading the file", 0.0)
    share, since = share or LayerShare(), time.time_ns()
    file = open_gguf(config.model, allows_missing_parts=share.is_shared)
    with ExitStack() as undo:  # what an error undoes
        undo.callback(file.close)
        watched = MappedFile(file, since)
        undo.callback(watched.close)
        engine = _load(file, config, report, open_device, share, watched, undo)
        undo.pop_all()  # closing the engine does all of it
        undo.callback(engine.close)
        watched.check_reads()
        undo.pop_all()
    return engine


def _load(
    file: GgufFile,
    config: RunConfig,
    report: Progress,
    open_device: OpenGpu,
    share: LayerShare,
    watched: MappedFile,
    undo: ExitStack,
) -> Engine:
    folder = open_page_folder(config)  # before anything large is read
    decided = decide_load(file, config, open_device, share)
    undo.callback(decided.reservation.close)
    file, weights, tokenizer = _read(decided, report)
    decided = replace(decided, file=file)
    tier = _expert_tier(decided, report, is_shared=share.is_shared)
    if tier is not None:
        undo.callback(tier.close)
    report("preparing the engine", 0.8)
    slots, misses = _gpu_slots(decided, weights)
    model, layers = decided.model, decided.layers
    whole = PartModel(
        model, weights, decided.settings, range(model.num_layers) if layers is None else layers,
        has_output=layers is None, keeps_hidden=model.has_head and layers is None,
        keeps_router_logits=config.experts.trace is not None and model.is_moe,
    )  # fmt: skip
    own_parts = make_parts(whole, decided.gpu.devices, decided.plan, tier, slots)
    for part in own_parts:
        undo.callback(part.close)
    features = Features(decided, weights, tier, own_parts, share, folder, load_engine)
    undo.callback(features.close)
    runner = Runner(
        decided.settings, weights.output.rows, features.parts, features.memory,
        (watched, *features.observers), has_states=bool(decided.model.states), remote=share.remote,
        returns_hidden=decided.model.has_head,
    )  # fmt: skip
    if decided.gpu.devices:
        runner.prepare()  # what a GPU cannot do is found here, and not in the answer
    notes = (
        *tokenizer.notes,
        *notes_on_extra(weights.unused, decided.model.num_layers),
        *decided.notes,
        *decided.gpu.notes,
        *features.notes,
        *(() if misses is None else misses.notes),
        *dict.fromkeys(note for each in slots if each is not None for note in each.notes),
        *share.notes,
        *decided.plan_notes,
    )
    report("ready", 1.0)
    return Engine(decided, tokenizer, runner, notes, tier, features, watched)


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


def _gpu_slots(
    decided: LoadDecisions, weights: ModelWeights
) -> "tuple[tuple[GpuSlots | None, ...], MissCapabilities | None]":
    """Decides about the slots on each GPU; returns them and what the driver allows."""
    plan, config = decided.plan, decided.config
    if plan is None or not decided.gpu.devices:
        return (), None
    from sharpi.engine.backends.gpu.miss_capabilities import find_miss_capabilities
    from sharpi.engine.backends.gpu.slots import gpu_slots

    found = find_miss_capabilities(decided.gpu.devices[0], config, plan, weights)
    slots = tuple(
        gpu_slots(
            config, decided.model, plan, place, decided.profile,
            reads_ram=found.reads_ram, can_use_cpu=found.can_use_cpu,
        )
        for place in plan.gpus
    )  # fmt: skip
    return slots, found


def _expert_tier(
    decided: LoadDecisions, report: Progress, *, is_shared: bool
) -> "ExpertTier | None":
    """Builds the slots in RAM; None if the plan needs none."""
    plan, config = decided.plan, decided.config
    if plan is None or plan.is_mapped:
        return None
    from sharpi.engine.backends.expert_tier import ExpertTier

    report("making room for experts", 0.7)
    return ExpertTier(
        decided.file, decided.model, plan, ram_request(config, plan), decided.profile,
        may_map=not is_shared and may_map(config, plan),
    )  # fmt: skip


def _refuse_tokens_without_row(file: GgufFile, tokenizer: Tokenizer, weights: ModelWeights) -> None:
    """Refuses a tokenizer with ids beyond the output matrix: kernels do not check ids."""
    rows = weights.output.rows
    if tokenizer.vocab_size > rows:
        raise file_error(
            file.path, f"corrupt: {tokenizer.vocab_size} tokens, but embeddings for only {rows}"
        )
