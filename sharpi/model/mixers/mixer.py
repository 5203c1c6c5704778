"""Mixer: the interface of attention and recurrent layers, which mix the tokens of a sequence.

Each kind has a module with two classes: settings, which are read from the file's metadata and load
the weights, and a mixer, which holds the weights and computes a step.
"""

from typing import Protocol

from msgspec import Struct

from sharpi.model.mixers.rope import Angles, Rope
from sharpi.model.tensors import TensorSource
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.interface import Matrix, Ops, X
from sharpi.ops.recurrent import RecurrentShape


class Mixer(Protocol):
    """The interface of one layer's mixer: its weights, and the operations of a step."""

    @property
    def output(self) -> Matrix:
        """The projection back to the hidden width, (hidden, columns)."""

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """Returns the result (columns,) of mixing the normed input h (hidden,) with other tokens.

        The result is the input of the projection `output`.
        """


class SideBySide(Struct, frozen=True):
    """Attention and a recurrent mixer, which read the same input and whose results are added."""

    parts: tuple[Mixer, Mixer]


class MixerSettings(Protocol):
    """The interface of the settings of one layer's mixer."""

    @property
    def kv_shape(self) -> AttentionShape | None:
        """The shape of the layer's keys and values; None if the layer stores none."""

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        """The shapes of the layer's recurrent states; empty if it has none."""

    @property
    def rope(self) -> Rope | None:
        """The rotary embedding of queries and keys; None in a layer without rotary positions."""

    def load(self, tensors: TensorSource) -> Mixer | SideBySide | None:
        """Loads the mixer from the layer's tensors; returns None in a layer without a mixer.

        Raises ModelFileError for a missing or misshapen tensor.
        """


class SideBySideSettings(Struct, frozen=True):
    """The settings of a layer with attention and a recurrent mixer (Falcon-H1)."""

    attention: MixerSettings
    recurrent: MixerSettings
    rope: Rope | None

    @property
    def kv_shape(self) -> AttentionShape | None:
        return self.attention.kv_shape

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        return self.recurrent.state_shapes

    def load(self, tensors: TensorSource) -> SideBySide:
        """Loads both mixers from the layer's tensors."""
        attention, recurrent = self.attention.load(tensors), self.recurrent.load(tensors)
        assert attention is not None
        assert recurrent is not None
        assert not isinstance(attention, SideBySide)
        assert not isinstance(recurrent, SideBySide)
        return SideBySide((attention, recurrent))
