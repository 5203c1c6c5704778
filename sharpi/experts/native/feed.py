"""The expert feed of kernels/cpu/experts: how the native operations of a step use an expert store.

The recorded step acquires the experts of its routes, waits for them and lets them go, and predicts
what the next layer uses; from here it is only switched and asked what happened.
"""

import ctypes
from ctypes import POINTER, c_int, c_void_p
from functools import cache

from sharpi.experts.native.predictor_native import PredictionCounts
from sharpi.experts.native.store import ExpertStore
from sharpi.experts.predictor import PREDICTORS
from sharpi.ops.cpu.library import load_library

ROUTER = "router"  # the next layer's router, tried on what this layer has
_ROUTES_BESIDE = {ROUTER: "both"}  # for the first layer, which no other one comes before
PREDICTOR_NAMES = (*PREDICTORS, ROUTER)


class ExpertFeed:
    """A store with a predictor, or with none; the store has to outlive it.

    `budget`: experts of a layer that are predicted at most.
    """

    def __init__(self, store: ExpertStore, predictor: str | None, budget: int) -> None:
        self.store, self.predictor = store, predictor
        self._library = _feed_library()
        kind = (
            -1 if predictor is None else PREDICTORS.index(_ROUTES_BESIDE.get(predictor, predictor))
        )
        num_experts = store.policy.settings.num_experts
        self._handle = self._library.sharpi_feed_create(
            store.handle, kind, num_experts, budget, self.asks_router
        )
        if not self._handle:
            raise MemoryError(f"no memory for the predictor {predictor}")

    @property
    def handle(self) -> int:
        """The native object; raises ValueError after `close`."""
        if self._handle is None:
            raise ValueError("the expert feed is closed")
        return int(self._handle)

    def close(self) -> None:
        """Frees the native object; a second call does nothing."""
        if self._handle is not None:
            self._library.sharpi_feed_destroy(self._handle)
            self._handle = None

    def table(self, layer: int, piece: int) -> int:
        """Address of the addresses of a layer's gate (0), up (1) or down (2) matrices."""
        return self.store.table(layer, piece)

    @property
    def asks_router(self) -> bool:
        """Whether the step is to be recorded with predictions of the next layer's router."""
        return self.predictor == ROUTER

    def begin_step(self, *, may_predict: bool) -> bool:
        """Whether the next step predicts: it may, and predictions were right of late, or are
        probed.
        """
        return bool(self._library.sharpi_feed_begin_step(self.handle, may_predict))

    def reset_sequence(self) -> None:
        """A new, unrelated text begins."""
        self._library.sharpi_feed_reset_sequence(self.handle)

    def predictions(self) -> PredictionCounts:
        """What was predicted for decoded tokens since the start, and how much of it was right."""
        counts = PredictionCounts()
        self._library.sharpi_feed_prediction_counts(self.handle, ctypes.byref(counts))
        return counts

    def check_step(self) -> None:
        """Raises ModelFileError where the last step lacked an expert: its results are void."""
        if self._library.sharpi_feed_take_failure(self.handle):
            raise self.store.read_error()


@cache
def _feed_library() -> ctypes.CDLL:
    """The native library with the feed's functions typed."""
    library = load_library()
    signatures = {
        "sharpi_feed_create": (c_void_p, [c_void_p, c_int, c_int, c_int, c_int]),
        "sharpi_feed_destroy": (None, [c_void_p]),
        "sharpi_feed_take_failure": (c_int, [c_void_p]),
        "sharpi_feed_begin_step": (c_int, [c_void_p, c_int]),
        "sharpi_feed_reset_sequence": (None, [c_void_p]),
        "sharpi_feed_prediction_counts": (None, [c_void_p, POINTER(PredictionCounts)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
