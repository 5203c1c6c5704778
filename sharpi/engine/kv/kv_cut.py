"""Decides how much of a long prompt's KV cache to keep; refuses models that must keep all."""

from typing import NamedTuple

from msgspec.structs import replace

from sharpi.errors import UsageError
from sharpi.hardware.info import has_gpu
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.kv_cache import KEEP_WINDOW, PAGE_POSITIONS
from sharpi.settings import RunConfig


class Cut(NamedTuple):
    """The cut of a prompt's KV cache: of `length` positions, each head keeps `num_kept`."""

    length: int
    num_kept: int

    @property
    def window(self) -> int:
        """The position of the first token whose queries choose the kept positions."""
        return self.length - KEEP_WINDOW

    @property
    def num_pages(self) -> int:
        """The number of pages that the kept positions take."""
        return pages_of(self.num_kept)


def pages_of(num_kept: int) -> int:
    """Returns the number of pages that `num_kept` positions take."""
    return -(-num_kept // PAGE_POSITIONS)


def cut_of(num_prompt_tokens: int, num_kept: int) -> Cut | None:
    """Returns a prompt's cut; None if it has at most `num_kept` tokens, or `num_kept` is 0."""
    return Cut(num_prompt_tokens, num_kept) if 0 < num_kept < num_prompt_tokens else None


def checked_keep(config: RunConfig, model: ModelConfig) -> int:
    """Returns how many positions of a prompt each head keeps, 0 for all.

    Raises UsageError if the request is too low, or if this model cannot drop positions.
    """
    if config.kv_keep is None:
        return 0
    if config.kv_keep < 2 * KEEP_WINDOW:
        raise UsageError(
            f"--kv-keep {config.kv_keep} is too few: give {2 * KEEP_WINDOW} at least, of which the"
            f" last {KEEP_WINDOW} tokens of the prompt are always kept"
        )
    reason = _why_not(config, model)
    if reason is not None:
        raise UsageError(f"--kv-keep: {reason}; omit it")
    return config.kv_keep


def _why_not(config: RunConfig, model: ModelConfig) -> str | None:
    if not model.attention or any(mixer.state_shapes for mixer in model.mixers):
        return "this model's recurrent layers keep a state, from which no position can be dropped"
    if any(shape.window for shape in model.attention):
        return "this model has layers that read a window of positions, which has to stay whole"
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
    """Returns the configuration, set to the CPU if keys are dropped, and a note on that change.

    Raises UsageError if keys are dropped and a GPU was requested.
    """
    if config.kv_keep is None or config.device == "cpu":
        return config, ()
    reason = "keys and values on a GPU are all kept"
    if config.device == "cuda":
        raise UsageError(f"--kv-keep: {reason}; omit it, or --device")
    note = f"--kv-keep: the CPU runs the model, since {reason}"
    return replace(config, device="cpu"), (note,) if has_gpu() else ()
