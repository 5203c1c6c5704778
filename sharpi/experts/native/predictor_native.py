"""The Python interface of the native predictors in kernels/cpu/experts."""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_int, c_int64, c_void_p
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sharpi.errors import UsageError
from sharpi.experts.native.native_policy import NativeTrace, native_trace
from sharpi.experts.predictor import PREDICTORS
from sharpi.experts.trace.trace_steps import Steps
from sharpi.native import declare
from sharpi.ops.cpu.library import load_library


class PredictionCounts(Structure):
    """The numbers of experts that were predicted, used, and both predicted and used."""

    _fields_ = (("predicted", c_int64), ("used", c_int64), ("right", c_int64))


class NativePredictor:
    """A native predictor with the methods of `Predictor`; `replay` processes a whole trace."""

    def __init__(self, name: str, num_layers: int, num_experts: int) -> None:
        if name not in PREDICTORS:
            raise UsageError(
                f"there is no predictor '{name}'; choose one of {', '.join(PREDICTORS)}"
            )
        self._num_experts = num_experts
        self._library = predictor_library()
        kind = PREDICTORS.index(name)
        self._handle = self._library.sharpi_predictor_create(kind, num_layers, num_experts)
        if not self._handle:
            raise MemoryError(f"no memory for the predictor {name}")
        self._predicted = np.empty(num_experts, np.int32)

    @property
    def handle(self) -> int:
        """The address of the native object; raises ValueError after `close`."""
        if self._handle is None:
            raise ValueError("the predictor is closed")
        return int(self._handle)

    def close(self) -> None:
        """Frees the native object; a second call does nothing."""
        if self._handle is not None:
            self._library.sharpi_predictor_destroy(self._handle)
            self._handle = None

    def observe(self, layer: int, experts: Sequence[int] | NDArray[np.integer]) -> None:
        """Records the experts that the current token uses in a layer, best first."""
        ids = np.ascontiguousarray(experts, np.int32)
        self._library.sharpi_predictor_observe(self.handle, layer, ids.ctypes.data, len(ids))

    def predict(self, layer: int, budget: int) -> list[int]:
        """Predicts at most `budget` distinct experts for a layer's next use, likeliest first."""
        most = min(budget, self._num_experts)
        arguments = (self.handle, layer, most, self._predicted.ctypes.data)
        count = self._library.sharpi_predictor_predict(*arguments)
        return [int(expert) for expert in self._predicted[:count]]

    def reset_sequence(self) -> None:
        """Prepares for a new, unrelated text: forgets the routes, but keeps the counts."""
        self._library.sharpi_predictor_reset_sequence(self.handle)

    def replay(self, steps: Steps, budget: int) -> PredictionCounts:
        """Replays a trace's decoded tokens, and predicts `budget` experts before every layer.

        Returns how many experts were predicted, used, and both.
        """
        trace, predictions = native_trace(steps, self._num_experts), PredictionCounts()
        status = self._library.sharpi_predictor_replay(
            self.handle,
            ctypes.byref(trace),
            min(budget, self._num_experts),
            ctypes.byref(predictions),
        )
        if status < 0:
            raise MemoryError("no memory to replay the trace")
        return predictions


@cache
def predictor_library() -> ctypes.CDLL:
    """Returns the native library with argument types set for the predictors' functions."""
    library = load_library()
    signatures = {
        "sharpi_predictor_create": (c_void_p, [c_int, c_int, c_int]),
        "sharpi_predictor_destroy": (None, [c_void_p]),
        "sharpi_predictor_observe": (None, [c_void_p, c_int, c_void_p, c_int]),
        "sharpi_predictor_predict": (c_int, [c_void_p, c_int, c_int, c_void_p]),
        "sharpi_predictor_reset_sequence": (None, [c_void_p]),
        "sharpi_predictor_replay": (
            c_int,
            [c_void_p, POINTER(NativeTrace), c_int, POINTER(PredictionCounts)],
        ),
    }
    return declare(library, signatures)
