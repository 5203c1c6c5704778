"""Reads the settings of the rotary embedding of each layer."""

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.rope import (
    Rope,
    RopeScaling,
    read_scaling,
    yarn_attention_factor,
)
from sharpi.model.spec import ArchitectureSpec


class RopeReader:
    """Reads the rope settings of each layer; raises ModelFileError that names the bad key."""

    def __init__(
        self, reader: HyperparameterReader, spec: ArchitectureSpec, *, has_windows: bool
    ) -> None:
        self._reader, self._spec, self._has_windows = reader, spec, has_windows
        self._scaling = self._read_scaling()
        self._base = reader.positive("rope.freq_base", 10000.0)
        self._num_dense = 0
        if spec.ropes_dense_layers:
            self._num_dense = reader.integer("leading_dense_block_count", 0)
        key = "attention.rope_pattern"  # in some files: for each layer, whether it has a rope
        self._pattern = reader.flags(key) if reader.has(key) else None
        self._local_base = reader.positive("rope.freq_base_swa", spec.local_rope_base)

    def rope(self, layer: int, window: int, key_dim: int) -> Rope | None:
        """Returns the rope of a layer with this window and head size; None if it has no rope."""
        leaves_out = self._spec.ropes_windows_only and self._has_windows and not window
        leaves_out = leaves_out and layer >= self._num_dense
        if self._pattern is not None and not self._pattern[layer]:
            return None
        if leaves_out or not self._rotates():
            return None
        interleaved = self._spec.rope_pairing == "interleaved"
        dims = self._dims(window, key_dim)
        if window and self._local_base:
            return Rope(dims, self._local_base, RopeScaling(), interleaved, is_divided=False)
        return Rope(dims, self._base, self._scaling, interleaved)

    def _dims(self, window: int, key_dim: int) -> int:
        key = "rope.dimension_count"
        if window and self._reader.has(f"{key}_swa"):
            key = f"{key}_swa"
        dims = self._reader.integer(key, 0) or key_dim
        if self._spec.whole_layers_rotate_half and not window:
            dims //= 2
        if not 0 < dims <= key_dim or dims % 2:
            raise self._reader.fault(
                f"{self._reader.name(key)} is {dims}, not an even number up to {key_dim}, a head's"
                " size"
            )
        return dims

    def _read_scaling(self) -> RopeScaling:
        reader, spec = self._reader, self._spec
        scaling = read_scaling(reader.metadata, reader.architecture, spec.yarn_rounds_ramp)
        if scaling.kind == "divided" and spec.long_rope_factor:
            return scaling.with_factor(spec.long_rope_factor)
        multiplier = reader.number("rope.scaling.yarn_log_multiplier", 0.0)
        if scaling.kind == "yarn" and multiplier and not scaling.attention_factor:
            plain = yarn_attention_factor(scaling.factor)
            return scaling.with_factor(plain / yarn_attention_factor(scaling.factor, multiplier))
        return scaling

    def _rotates(self) -> bool:
        """Returns True if the model has rotary embeddings at all.

        In Granite files, the flag `rope.scaling.finetuned` decides.
        """
        if self._spec.rope_use == "flagged":
            return self._reader.flag("rope.scaling.finetuned", True)
        return self._spec.rope_use == "always"
