"""The expert feed of kernels/cpu/experts, through which a step's native operations use experts.

The native operations acquire the experts of their routes, wait for them, release them and predict
the experts of the next layer. Python only switches predictions on or off and reads the counts.
"""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_int, c_int32, c_int64, c_uint8, c_void_p
from functools import cache

from sharpi.errors import UsageError
from sharpi.experts.native.native_policy import NativeTrace, native_trace
from sharpi.experts.native.store import ExpertStore
from sharpi.experts.policy_settings import PREDICTORS, ROUTER
from sharpi.experts.trace.trace import Steps
from sharpi.native import NativeObject, declare
from sharpi.ops.cpu.library import load_library

_ROUTES_BESIDE = {ROUTER: "both"}  # predicts the first layer, which has no router before it


class FeedCounts(Structure):
    """Mirrors `FeedCounts` of kernels/cpu/experts/store/expert_feed.h."""

    _fields_ = (
        ("predicted", c_int64),  # experts, for decoded tokens
        ("used", c_int64),  # experts used in steps with predictions
        ("right", c_int64),  # experts predicted and used
        ("steps", c_int64),  # steps that decoded
        ("predicted_steps", c_int64),  # steps that decoded with predictions
        ("is_worth_it", c_int64),  # 1 if enough of the latest prefetches were used
    )


class ExpertFeed(NativeObject):
    """The access of native operations to an expert store, with a predictor unless that is None.

    The store has to outlive the feed. `budget`: the maximum number of experts predicted for a
    layer.
    """

    def __init__(self, store: ExpertStore, predictor: str | None, budget: int) -> None:
        self.store, self.predictor = store, predictor
        self._library = _feed_library()
        kind = (
            -1 if predictor is None else PREDICTORS.index(_ROUTES_BESIDE.get(predictor, predictor))
        )
        num_experts = store.policy.settings.num_experts
        create = self._library.sharpi_feed_create
        address = create(store.handle, kind, num_experts, budget, self.uses_router)
        super().__init__(address, self._library.sharpi_feed_destroy, "expert feed")

    def table(self, layer: int, piece: int) -> int:
        """Returns the address of the addresses (experts,) of gate (0), up (1) or down (2)."""
        return self.store.table(layer, piece)

    @property
    def uses_router(self) -> bool:
        """True if steps have to run the next layer's router to predict its experts."""
        return self.predictor == ROUTER

    def begin_step(self, *, may_predict: bool, is_prompt: bool = False) -> bool:
        """Prepares for a step; returns True if the step will predict experts.

        It will only if `may_predict` is set, and either recent predictions were right often enough
        or a probe is due. With `is_prompt`, its accesses are counted for prompts, otherwise for
        decoded tokens.
        """
        return bool(self._library.sharpi_feed_begin_step(self.handle, may_predict, is_prompt))

    def set_sequences(self, sequences: Sequence[int], begins: Sequence[bool]) -> None:
        """Sets each row's sequence id for the next steps; `begins` (rows,) is True for new ones."""
        count = len(sequences)
        names, flags = (c_int32 * count)(*sequences), (c_uint8 * count)(*begins)
        if self._library.sharpi_feed_set_sequences(self.handle, names, flags, count):
            raise MemoryError("no memory for the predictor's sequences")

    def reset_sequence(self) -> None:
        """Tells the policy and the predictor that a new, unrelated text begins."""
        self._library.sharpi_feed_reset_sequence(self.handle)

    def counts(self) -> FeedCounts:
        """Returns the counts of predicted and used experts of decoded tokens since the start."""
        counts = FeedCounts()
        self._library.sharpi_feed_counts(self.handle, ctypes.byref(counts))
        return counts

    def check_step(self) -> None:
        """Raises ModelFileError if the last step's results lack an expert that was not read."""
        if self._library.sharpi_feed_take_failure(self.handle):
            raise self.store.read_error()


@cache
def _feed_library() -> ctypes.CDLL:
    """Returns the native library with argument types set for the feed's functions."""
    library = load_library()
    signatures = {
        "sharpi_feed_create": (c_void_p, [c_void_p, c_int, c_int, c_int, c_int]),
        "sharpi_feed_destroy": (None, [c_void_p]),
        "sharpi_feed_take_failure": (c_int, [c_void_p]),
        "sharpi_feed_begin_step": (c_int, [c_void_p, c_int, c_int]),
        "sharpi_feed_set_sequences": (c_int, [c_void_p, c_void_p, c_void_p, c_int]),
        "sharpi_feed_reset_sequence": (None, [c_void_p]),
        "sharpi_feed_counts": (None, [c_void_p, POINTER(FeedCounts)]),
    }
    return declare(library, signatures)


class PredictionCounts(Structure):
    """The numbers of experts that were predicted, used, and both predicted and used."""

    _fields_ = (("predicted", c_int64), ("used", c_int64), ("right", c_int64))


class NativePredictor(NativeObject):
    """A native predictor, which predicts the experts of a whole trace."""

    def __init__(self, name: str, num_layers: int, num_experts: int) -> None:
        if name not in PREDICTORS:
            raise UsageError(
                f"there is no predictor '{name}'; choose one of {', '.join(PREDICTORS)}"
            )
        self._num_experts = num_experts
        self._library = predictor_library()
        kind = PREDICTORS.index(name)
        address = self._library.sharpi_predictor_create(kind, num_layers, num_experts)
        super().__init__(address, self._library.sharpi_predictor_destroy, "predictor")

    def replay(self, steps: Steps, budget: int) -> PredictionCounts:
        """Replays a trace's decoded tokens, and counts predictions of `budget` experts a layer."""
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
        "sharpi_predictor_replay": (
            c_int,
            [c_void_p, POINTER(NativeTrace), c_int, POINTER(PredictionCounts)],
        ),
    }
    return declare(library, signatures)
