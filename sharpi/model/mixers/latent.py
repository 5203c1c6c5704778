"""The projections between the hidden state and a smaller latent space for experts (Nemotron 3)."""

from msgspec import Struct

from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Matrix


class Latent(Struct, frozen=True):
    """The projections from the hidden state into the latent space and back."""

    down: Matrix  # (width, hidden), before the experts
    up: Matrix  # (hidden, width), after their sum


def load_latent(tensors: TensorSource, hidden: int) -> Latent | None:
    """Loads the projections; returns None if the experts read the hidden state directly."""
    down = tensors.optional_matrix("ffn_latent_down", (None, hidden))
    if down is None:
        return None
    return Latent(down, tensors.matrix("ffn_latent_up", (hidden, down.rows)))
