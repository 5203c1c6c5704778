"""Predictors: native equal to reference, what they learn, and what a new text resets."""

from collections.abc import Sequence
from ctypes import c_int, c_void_p

import numpy as np
import pytest
from reference_predictor import Predictor
from route_traces import skewed_routes

from sharpi.errors import UsageError
from sharpi.experts.native.feed import PREDICTORS, NativePredictor
from sharpi.experts.simulation.simulate import measure, measure_predictors
from sharpi.experts.trace.trace import Trace
from sharpi.native import declare

pytestmark = pytest.mark.native


class SteppedPredictor(NativePredictor):
    """A native predictor with the methods of the reference, for one token after the other."""

    def __init__(self, name: str, num_layers: int, num_experts: int) -> None:
        super().__init__(name, num_layers, num_experts)
        signatures = {
            "sharpi_predictor_observe": (None, [c_void_p, c_int, c_void_p, c_int]),
            "sharpi_predictor_predict": (c_int, [c_void_p, c_int, c_int, c_void_p]),
            "sharpi_predictor_reset_sequence": (None, [c_void_p]),
        }
        self._steps = declare(self._library, signatures)

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        ids = np.array(experts, np.int32)
        self._steps.sharpi_predictor_observe(self.handle, layer, ids.ctypes.data, len(ids))

    def predict(self, layer: int, budget: int) -> list[int]:
        ids = np.empty(budget, np.int32)
        arguments = (self.handle, layer, budget, ids.ctypes.data)
        return ids[: self._steps.sharpi_predictor_predict(*arguments)].tolist()

    def reset_sequence(self) -> None:
        self._steps.sharpi_predictor_reset_sequence(self.handle)


@pytest.mark.slow
@pytest.mark.parametrize("name", PREDICTORS)
def test_native_guesses_as_the_reference(name: str) -> None:
    native, reference = SteppedPredictor(name, 3, 12), Predictor(name, 3, 12)
    for token, layers in enumerate(skewed_routes(1200, 3, 12, 2)):
        if token % 400 == 399:
            native.reset_sequence()
            reference.reset_sequence()
        for layer, route in enumerate(layers.tolist()):
            assert native.predict(layer, 4) == reference.predict(layer, 4), (token, layer)
            native.observe(layer, route)
            reference.observe(layer, route)
    native.close()


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_new_text_starts_without_a_guess_for_its_first_layer(name: str) -> None:
    predictor = SteppedPredictor(name, 2, 8)
    for _ in range(5):
        predictor.observe(0, [1, 2])
        predictor.observe(1, [3, 4])
    assert predictor.predict(0, 2) == [1, 2]
    predictor.reset_sequence()
    # Frequencies belong to the model, routes to the text.
    assert predictor.predict(0, 2) == ([1, 2] if name == "frequency" else [])


def test_layers_that_follow_each_other_are_learned() -> None:
    random = np.random.default_rng(0)
    first = random.integers(0, 16, (500, 1, 1))
    routes = np.concatenate([first, (3 * first + 1) % 16], axis=1).astype(np.int32)
    trace = Trace(routes, np.array([500]), 16)
    assert measure(trace, "last-layer", 1).recall > 0.45  # all of the second layer's
    assert measure(trace, "last-token", 1).recall < 0.15


def test_recall_and_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = np.array([[[0, 1]], [[0, 2]], [[0, 2]]], np.int32)
    row = measure(Trace(routes, np.array([3]), 4), "last-token", 2)
    assert (row.recall, row.precision) == (3 / 6, 3 / 4)


def test_every_predictor_is_measured() -> None:
    trace = Trace(skewed_routes(50, 2, 8, 2), np.array([50]), 8)
    rows = measure_predictors(trace)
    assert [(row.predictor, row.guesses) for row in rows] == [
        (name, guesses) for guesses in (2, 4) for name in PREDICTORS
    ]


def test_unknown_name() -> None:
    with pytest.raises(UsageError, match="choose one of last-token, last-layer, both"):
        NativePredictor("oracle", 2, 8)
