"""Decides EngineSettings from the request, the model and the machine by pure functions."""

from collections.abc import Iterator

from msgspec.structs import replace

from sharpi.engine.kv.kv_choice import KvChoice
from sharpi.engine.kv.window_pages import window_pages, windows_of
from sharpi.errors import UsageError
from sharpi.gguf.header import is_routed
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import HardwareInfo, has_gpu
from sharpi.hardware.topology import place_threads
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.kv_cache import KEEP_WINDOW, PAGE_POSITIONS, check_kv_types, kv_bytes
from sharpi.ops.cpu.library import best_without
from sharpi.ops.cpu.program import Rounding
from sharpi.ops.recurrent import state_bytes
from sharpi.settings import KvTypes, RunConfig, SpeculationConfig
from sharpi.tiers.settings import EngineSettings
from sharpi.units import format_bytes

DEFAULT_CONTEXT = 4096
SMALL_MODEL_BYTES = 1 << 30
MAX_PARALLEL = 64
MAX_DRAFTS = 15  # checked in one step: with the newest token, the 16 rows of a tile
STATEFUL_DRAFTS = 4  # with recurrent layers: each draft takes a copy of their state
STATES_SHARE = 20  # copies that nobody asked for take at most one part in 20 of the file's size
# Bytes read per token and thread, about 100 us, below which barriers cost more than a thread saves.
BYTES_WORTH_A_THREAD = 4 << 20


def decide(
    config: RunConfig, file: GgufFile, model: ModelConfig, hardware: HardwareInfo
) -> EngineSettings:
    """Decides the settings; raises UsageError for a request that cannot be met."""
    context_size, num_parallel = _context_size(config, model), _num_parallel(config)
    kv_keep = _checked_keep(config, model)
    in_windows = window_pages(config, model)
    choice = KvChoice(config, file, model, hardware, context_size, in_windows)
    types, types_note = choice.types()
    check_kv_types(model.attention, types)
    _check_fit(context_size, model, hardware, types, in_windows)
    pages, pages_note = choice.pages(types)
    batch_threads = config.num_batch_threads or config.num_threads or hardware.fast_cores
    threads = config.num_threads or _decode_threads(file, model, hardware)
    max_drafts = _max_drafts(config, file, model, context_size)
    return EngineSettings(
        context_size=context_size,
        batch_size=max(
            num_parallel + max_drafts + (KEEP_WINDOW if kv_keep else 0),
            min(config.batch_size, context_size),
        ),
        rounding=_rounding(config, file),
        instruction_set=_instruction_set(config, hardware),
        num_threads=threads,
        num_batch_threads=batch_threads,
        notes=(
            *_notes(config, model, hardware, context_size),
            *types_note,
            *pages_note,
            *_speculation_notes(config),
        ),
        kv_notes=types_note,
        kv_types=types,
        kv_keep=kv_keep,
        window=max(windows_of(model).values(), default=0),
        window_pages=in_windows if in_windows < pages else 0,
        num_parallel=num_parallel,
        num_kv_pages=pages + -(-kv_keep // PAGE_POSITIONS),
        capacity_factor=config.experts.capacity_factor,
        disabled=config.disabled,
        places=place_threads(hardware.topology, max(threads, batch_threads)),
        max_drafts=max_drafts,
    )


def _max_drafts(config: RunConfig, file: GgufFile, model: ModelConfig, context_size: int) -> int:
    """Returns how many drafts a step may check; recurrent layers need a state for each."""
    speculation = config.speculation
    if not speculation.is_on or config.experts.trace is not None:
        return 0
    most = MAX_DRAFTS
    if model.states and speculation.max_drafts is None:
        most = STATEFUL_DRAFTS
        if speculation.is_default:
            max_states = file.num_bytes // STATES_SHARE // state_bytes(model.states)
            most = max(0, min(most, max_states - config.num_parallel))
    wanted = most if speculation.max_drafts is None else speculation.max_drafts
    return max(0, min(wanted, MAX_DRAFTS, context_size - 1))


def _instruction_set(config: RunConfig, hardware: HardwareInfo) -> str:
    """Returns the best instruction set without the features that are disabled."""
    if "vnni" in config.disabled and hardware.instruction_set.startswith("avx512"):
        return best_without(("avx512_vbmi", "avx512_vnni"))
    if "vbmi" in config.disabled and hardware.instruction_set == "avx512_vbmi":
        return best_without(("avx512_vbmi",))
    return hardware.instruction_set


def _rounding(config: RunConfig, file: GgufFile) -> Rounding:
    """Returns the rounding of activations."""
    if config.precision != "auto":
        return config.precision
    size = sum(tensor.num_bytes for tensor in file.tensors.values())
    return "int16" if size < SMALL_MODEL_BYTES else "int8"


def active_bytes(file: GgufFile, model: ModelConfig) -> int:
    """Counts the bytes of weights read per token: the routed experts, and all other weights."""
    total = 0
    for name, tensor in file.tensors.items():
        if model.is_moe and is_routed(name):
            total += tensor.num_bytes * model.num_experts_per_token // model.num_experts
        elif name != "token_embd.weight" or "output.weight" not in file.tensors:
            total += tensor.num_bytes
    return total


def _decode_threads(file: GgufFile, model: ModelConfig, hardware: HardwareInfo) -> int:
    """Returns the number of fast cores, or fewer if threads would mostly wait at barriers."""
    worth = active_bytes(file, model) // BYTES_WORTH_A_THREAD
    return max(1, min(hardware.fast_cores, worth))


def _context_size(config: RunConfig, model: ModelConfig) -> int:
    """Returns the requested context size in tokens, or a modest default."""
    wanted = config.context_size
    if wanted is not None and wanted < 1:
        raise UsageError(f"the context size must be at least 1, not {wanted}")
    return wanted or min(model.context_length, DEFAULT_CONTEXT)


def _check_fit(
    size: int, model: ModelConfig, hardware: HardwareInfo, types: KvTypes, in_windows: int
) -> None:
    """Raises UsageError if a KV cache of `size` positions exceeds the RAM."""
    needed = kv_bytes(model.attention, size, types, in_windows)
    if hardware.total_ram and needed > hardware.total_ram:
        raise UsageError(
            f"a context of {size} needs {format_bytes(needed)} of KV cache, this machine has"
            f" {format_bytes(hardware.total_ram)}; lower it with -c"
        )


def _num_parallel(config: RunConfig) -> int:
    if not 1 <= config.num_parallel <= MAX_PARALLEL:
        raise UsageError(
            f"1 to {MAX_PARALLEL} sequences can be computed at once, not {config.num_parallel};"
            " more of them wait in the queue"
        )
    return config.num_parallel


def _speculation_notes(config: RunConfig) -> tuple[str, ...]:
    """Returns a note if given flags about drafts have no effect."""
    speculation = config.speculation
    if speculation.is_on and config.experts.trace is not None:
        return ("--moe-trace records single steps, so no drafts are checked",)
    if speculation.is_on or speculation == SpeculationConfig():
        return ()
    why = "--spec-draft-n-max is 0" if speculation.kinds else "--spec-type is none"
    return (f"nothing is drafted, since {why}; the other --spec options have no effect",)


def _notes(
    config: RunConfig, model: ModelConfig, hardware: HardwareInfo, context_size: int
) -> Iterator[str]:
    if context_size > model.context_length:
        yield (
            f"the model was trained on {model.context_length} tokens of context; beyond them, of"
            f" {context_size}, its answers may make no sense"
        )
    asked = max(config.num_threads or 0, config.num_batch_threads or 0)
    if asked > hardware.logical_cores:
        yield f"{asked} threads on {hardware.logical_cores} cores wait for each other; lower -t"


def _checked_keep(config: RunConfig, model: ModelConfig) -> int:
    """Returns how many positions of a prompt each head keeps, 0 for all."""
    if config.kv_keep is None:
        return 0
    if config.kv_keep < 2 * KEEP_WINDOW:
        raise UsageError(
            f"--kv-keep {config.kv_keep} is too few: give {2 * KEEP_WINDOW} at least, of which the"
            f" last {KEEP_WINDOW} tokens of the prompt are always kept"
        )
    reason = _why_all_kept(config, model)
    if reason is not None:
        raise UsageError(f"--kv-keep: {reason}; omit it")
    return config.kv_keep


def _why_all_kept(config: RunConfig, model: ModelConfig) -> str | None:
    if not model.attention or any(mixer.state_shapes for mixer in model.mixers):
        return "this model's recurrent layers keep a state, from which no position can be dropped"
    if any(shape.window for shape in model.attention):
        return "this model has layers that read a window of positions, which has to stay whole"
    if any(shape.index for shape in model.attention):
        return "this model's indexers choose among all positions of a prompt"
    if any(shape.values_in_keys for shape in model.attention):
        return (
            "this model's latent attention has one small row per position for all heads, so that"
            " no head can choose its own"
        )
    if config.context_shift:
        return "--context-shift computes the text anew from tokens that would be dropped"
    if config.cluster is not None:
        return "several machines share the model, which keep all positions"
    return None


def on_cpu(config: RunConfig) -> tuple[RunConfig, tuple[str, ...]]:
    """Returns the configuration, on the CPU if keys are dropped, and a note; or UsageError."""
    if config.kv_keep is None or config.device == "cpu":
        return config, ()
    reason = "keys and values on a GPU are all kept"
    if config.device == "cuda":
        raise UsageError(f"--kv-keep: {reason}; omit it, or --device")
    note = f"--kv-keep: the CPU runs the model, since {reason}"
    return replace(config, device="cpu"), (note,) if has_gpu() else ()
