"""Reads the limits at which some layers clamp the SwiGLU activation (Step 3.5)."""

from msgspec import Struct

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.ops.interface import Activation

_ACTIVATIONS = {
    0.0: Activation.SILU,
    7.0: Activation.LIMITED_SILU_7,
    16.0: Activation.LIMITED_SILU_16,
}


class LayerActivations(Struct, frozen=True):
    """The activation functions of one layer's feed-forward."""

    routed: Activation  # of the routed experts
    dense: Activation  # of the shared expert, or of the feed-forward of a dense layer


def read_activations(
    reader: HyperparameterReader, activation: Activation
) -> tuple[LayerActivations, ...]:
    """Returns the activations of each layer, including layers for multi-token prediction.

    `activation` is the one of layers without limits. Raises ModelFileError, which names the key at
    fault.
    """
    count = reader.num_layers + reader.num_predict_layers
    routed, dense = (
        _read(reader, f"swiglu_clamp_{each}", activation, count) for each in ("exp", "shexp")
    )
    return tuple(LayerActivations(*pair) for pair in zip(routed, dense, strict=True))


def _read(
    reader: HyperparameterReader, key: str, activation: Activation, count: int
) -> list[Activation]:
    if not reader.has(key):
        return [activation] * count
    limits = [float(value) for value in reader.metadata.get_array(reader.name(key))]
    if len(limits) < reader.num_layers or activation is not Activation.SILU:
        raise reader.fault(f"{reader.name(key)} needs silu and a value for each layer")
    for limit in limits:
        if limit not in _ACTIVATIONS:
            raise reader.fault(f"{reader.name(key)} has {limit}; 0 (none), 7 and 16 work")
    found = [_ACTIVATIONS[limit] for limit in limits[:count]]
    return found + [activation] * (count - len(found))
