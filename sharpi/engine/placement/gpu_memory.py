"""Finds how much GPU memory a step takes, by recording it on a device that only counts bytes."""

from sharpi.device.counting import CountingDevice
from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.kv.window_pages import gpu_windows_of
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.ops.cuda.kv_cache import SPARE_FRAMES, layer_bytes
from sharpi.ops.cuda.recorder.attention_calls import FUSED_BYTES
from sharpi.ops.recurrent import num_states, state_bytes
from sharpi.tiers.settings import EngineSettings


def gpu_kv_bytes(
    config: ModelConfig, settings: EngineSettings, layers: range | None = None
) -> tuple[int, ...]:
    """Returns, for each layer, the bytes of its KV cache and recurrent states on a GPU.

    Layers outside of `layers` have 0 there, as other machines run them.
    """
    states = num_states(settings.num_parallel, settings.max_drafts)
    counts = [states * state_bytes(mixer.state_shapes) for mixer in config.mixers]
    windows = gpu_windows_of(config) if settings.window_pages else {}
    in_windows = settings.window_pages + SPARE_FRAMES
    for shape in config.attention:
        if shape.layer == config.num_layers:  # an MTP head, which runs on the CPU
            continue
        pages = in_windows if shape.layer in windows else settings.num_pages
        counts[shape.layer] += layer_bytes(shape, pages, settings.kv_types)
    return tuple(n if layers is None or i in layers else 0 for i, n in enumerate(counts))


def gpu_scratch_bytes(config: ModelConfig, weights: ModelWeights, settings: EngineSettings) -> int:
    """Returns the bytes of buffers, inputs and outputs, if all layers are on the GPU.

    Fewer layers need no more.
    """
    device = CountingDevice()
    part = GpuPart(device, config, weights, settings, keeps_hidden=config.has_head)
    part.prepare()
    buffers = device.num_bytes - part.held_bytes
    return buffers + _library_bytes(config, settings)


def _library_bytes(config: ModelConfig, settings: EngineSettings) -> int:
    """Returns the most bytes that a library kernel allocates in one call.

    Fused attention needs reordered keys, values and queries, and a result.
    """
    counts = [0]
    for shape in config.attention:
        dims = shape.key_dim + shape.value_dim
        kv = 2 * settings.context_size * shape.num_kv_heads * dims
        tokens = 2 * settings.batch_size * shape.num_heads * dims
        counts.append(2 * min(kv, FUSED_BYTES) + tokens)
    return max(counts)
