"""Limits of silu: layers have their own, and a file with others than the known ones is refused."""

from pathlib import Path

import numpy as np
import pytest

from sharpi.errors import ModelFileError
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config
from sharpi.model.feed_forward.swiglu_limits import LayerActivations, read_activations
from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.ops.interface import Activation

REFERENCES = Path(__file__).parents[1] / "references" / "data"
SILU, TO_7, TO_16 = Activation.SILU, Activation.LIMITED_SILU_7, Activation.LIMITED_SILU_16


def read(limits: list[float] | None, activation: Activation = SILU) -> tuple[LayerActivations, ...]:
    values = {"step35.block_count": 3, "step35.nextn_predict_layers": 1}
    values["step35.embedding_length"] = 64
    arrays = {} if limits is None else {"step35.swiglu_clamp_exp": np.array(limits, np.float32)}
    metadata = Metadata(Path("m.gguf"), values | arrays)
    return read_activations(HyperparameterReader(metadata, "step35"), activation)


def test_each_layer_has_its_own() -> None:
    with open_gguf(REFERENCES / "step35.gguf") as file:
        layers = read_config(file).feed_forward.layer_activations
    assert layers == tuple(
        LayerActivations(*pair) for pair in ((SILU, SILU), (TO_7, TO_16), (SILU, SILU))
    )


def test_layers_of_heads_have_none_unless_the_file_says_so() -> None:
    assert [each.routed for each in read([0.0, 7.0])] == [SILU, TO_7, SILU]
    assert [each.routed for each in read([0.0, 7.0, 16.0])] == [SILU, TO_7, TO_16]
    assert [each.dense for each in read([0.0, 7.0, 16.0])] == [SILU] * 3
    assert read(None, Activation.GELU) == (LayerActivations(*[Activation.GELU] * 2),) * 3


@pytest.mark.parametrize("limits", [[0.0, 5.0], [-7.0, 0.0], [float("nan"), 0.0]])
def test_other_limits_are_refused(limits: list[float]) -> None:
    with pytest.raises(ModelFileError, match=r"step35\.swiglu_clamp_exp has .*; 0 \(none\), 7 and"):
        read(limits)


def test_limits_need_silu_and_a_value_for_each_layer() -> None:
    for limits, activation in (([7.0], SILU), ([7.0, 7.0], Activation.GELU)):
        with pytest.raises(ModelFileError, match="needs silu and a value for each layer"):
            read(limits, activation)
