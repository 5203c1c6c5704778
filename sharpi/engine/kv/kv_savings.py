"""Notes for the user: the bytes of keys and values by type, and the parts that no type changes."""

from collections.abc import Iterator

from sharpi.config import KvTypes
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.kv_cache import KV_FORMATS, PAGE_POSITIONS, kv_bytes, supports_kv_types
from sharpi.ops.recurrent import state_bytes
from sharpi.units import format_bytes


def kv_notes(model: ModelConfig, context_size: int, window_pages: int = 0) -> Iterator[str]:
    """Yields lines on the KV cache of one full context: its bytes by type, and its special parts.

    `window_pages`: the pages that sliding-window layers have, 0 for all.
    """
    sizes = ", ".join(
        f"{types} {format_bytes(kv_bytes(model.attention, context_size, types, window_pages))}"
        for types in (KvTypes(kind, kind) for kind in KV_FORMATS)
        if supports_kv_types(model.attention, types)
    )
    if model.attention:
        yield f"keys and values of {context_size} positions, once all are used: {sizes}"
    if any(shape.values_in_keys for shape in model.attention):
        yield "its latent attention keeps one small row per position, so types save little"
    windows = [shape for shape in model.attention if shape.window]
    if windows:
        largest = max(shape.window for shape in windows)
        kept = f"{window_pages * PAGE_POSITIONS} at most" if window_pages else "those before it too"
        yield (
            f"{len(windows)} of {model.num_layers} layers read a window of {largest} positions at"
            f" most, and keep {kept}"
        )
    states = sum(state_bytes(mixer.state_shapes) for mixer in model.mixers)
    if states:
        count = sum(bool(mixer.state_shapes) for mixer in model.mixers)
        yield (
            f"{count} of {model.num_layers} layers keep a state of {format_bytes(states)} in all,"
            " whatever the context and the type"
        )
