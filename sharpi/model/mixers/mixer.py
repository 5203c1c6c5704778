"""What a layer mixes its tokens with: the interface of attention and its like, kind by kind.

A kind is a file of its own with two classes: settings, which are read from the file's keys and
load the weights, and the mixer itself, which holds them and takes the step.
"""

from typing import Protocol

from sharpi.model.mixers.rope import Angles, Rope
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import AttentionShape, Matrix, Ops, X
from sharpi.ops.recurrent import RecurrentShape


class Mixer(Protocol):
    """One layer's weights and step."""

    @property
    def output(self) -> Matrix:
        """The projection back to the hidden width, (hidden, columns)."""

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """What `output` is applied to, (columns,), from the normed input h (hidden,)."""


class MixerSettings(Protocol):
    """One layer's sizes and behaviours."""

    @property
    def kv_shape(self) -> AttentionShape | None:
        """The layer's own part of the KV cache, None where it has none."""

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        """What the layer carries from token to token beside the KV cache."""

    @property
    def rope(self) -> Rope | None:
        """How queries and keys are rotated, None where positions are left out."""

    def load(self, tensors: TensorSource) -> Mixer | None:
        """The mixer with the weights of the layer's tensors; raises ModelFileError.

        None in a layer that only has a feed-forward.
        """
