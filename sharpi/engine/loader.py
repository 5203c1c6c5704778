"""Loads a model: the one place that connects file, tokenizer, weights and engine."""

from collections.abc import Callable

from sharpi.config import RunConfig
from sharpi.engine.engine import Engine
from sharpi.engine.runner import Runner
from sharpi.errors import UsageError
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.hardware import HardwareInfo, probe_hardware
from sharpi.model.config import ModelConfig, read_config
from sharpi.model.weights import ModelWeights, load_weights
from sharpi.ops.kv_cache import kv_bytes
from sharpi.ops.program import Rounding
from sharpi.tokenizer.chat_template import chat_format
from sharpi.tokenizer.tokenizer import load_tokenizer
from sharpi.units import format_bytes

DEFAULT_CONTEXT = 4096
SMALL_MODEL_BYTES = 1 << 30
Progress = Callable[[str, float], None]


def load_engine(config: RunConfig, on_progress: Progress | None = None) -> Engine:
    """An engine ready to answer; raises SharpiError before anything large is allocated."""
    report = on_progress or (lambda stage, fraction: None)
    report("reading the file", 0.0)
    file = open_gguf(config.model)
    try:
        return _load(file, config, report)
    except BaseException:
        file.close()
        raise


def _load(file: GgufFile, config: RunConfig, report: Progress) -> Engine:
    model_config = read_config(file)
    hardware = probe_hardware(config.instruction_set)
    weights = load_weights(file, model_config)
    report("building the tokenizer", 0.3)
    tokenizer = load_tokenizer(file.metadata)
    report("preparing the engine", 0.8)
    context_size = _context_size(config.context_size, model_config, hardware)
    runner = _runner(model_config, weights, config, hardware, context_size, _rounding(config, file))
    report("ready", 1.0)
    return Engine(
        config=config,
        model_config=model_config,
        file=file,
        tokenizer=tokenizer,
        chat_format=chat_format(tokenizer),
        runner=runner,
        notes=(*tokenizer.notes, *_unused_note(weights), *_threads_note(config, hardware)),
    )


def _runner(
    model_config: ModelConfig,
    weights: ModelWeights,
    config: RunConfig,
    hardware: HardwareInfo,
    context_size: int,
    rounding: Rounding,
) -> Runner:
    threads = config.num_threads or hardware.physical_cores
    return Runner(
        model_config,
        weights,
        context_size=context_size,
        batch_size=config.batch_size,
        precision=rounding,
        instruction_set=hardware.instruction_set,
        num_threads=threads,
        num_batch_threads=config.num_batch_threads or threads,
    )


def _rounding(config: RunConfig, file: GgufFile) -> Rounding:
    """What "auto" means: a small model is the one that rounding hurts, and has speed to spare."""
    if config.precision != "auto":
        return config.precision
    size = sum(tensor.num_bytes for tensor in file.tensors.values())
    return "int16" if size < SMALL_MODEL_BYTES else "int8"


def _context_size(wanted: int | None, model_config: ModelConfig, hardware: HardwareInfo) -> int:
    """What was asked for, or a modest default; raises UsageError when its KV cache cannot fit."""
    if wanted is not None and wanted < 1:
        raise UsageError(f"the context size must be at least 1, not {wanted}")
    size = wanted or min(model_config.context_length, DEFAULT_CONTEXT)
    needed = kv_bytes(model_config.attention, size)
    if hardware.total_ram and needed > hardware.total_ram:
        raise UsageError(
            f"a context of {size} needs {format_bytes(needed)} of KV cache, this machine has"
            f" {format_bytes(hardware.total_ram)}; lower it with -c"
        )
    return size


def _threads_note(config: RunConfig, hardware: HardwareInfo) -> tuple[str, ...]:
    asked = max(config.num_threads or 0, config.num_batch_threads or 0)
    if asked <= hardware.logical_cores:
        return ()
    return (f"{asked} threads on {hardware.logical_cores} cores wait for each other; lower -t",)


def _unused_note(weights: ModelWeights) -> tuple[str, ...]:
    if not weights.unused:
        return ()
    shown = ", ".join(weights.unused[:4]) + (", ..." if len(weights.unused) > 4 else "")
    return (f"{len(weights.unused)} tensors are not used by this architecture: {shown}",)
