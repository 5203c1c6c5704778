"""The expert feed of kernels/cpu/experts: how the native operations of a step use an expert store.

The recorded step acquires the experts of its routes, waits for them, releases them and predicts
those of the next layer. Python only switches predictions on or off and reads the results.
"""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_int, c_int32, c_int64, c_uint8, c_void_p
from functools import cache

from sharpi.experts.native.store import ExpertStore
from sharpi.experts.predictor import PREDICTORS
from sharpi.native import declare
from sharpi.ops.cpu.library import load_library

ROUTER = "router"  # runs the next layer's router on the current layer's input
_ROUTES_BESIDE = {ROUTER: "both"}  # predicts the first layer, which no router precedes
PREDICTOR_NAMES = (*PREDICTORS, ROUTER)


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


class ExpertFeed:
    """Joins an expert store to a predictor, if there is one; the store has to outlive the feed.

    `budget`: the maximum number of experts predicted for a layer.
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
        """Returns the address of a layer's gate (0), up (1) or down (2) addresses, (experts)."""
        return self.store.table(layer, piece)

    @property
    def asks_router(self) -> bool:
        """True if steps have to be recorded with predictions by the next layer's router."""
        return self.predictor == ROUTER

    def begin_step(self, *, may_predict: bool, is_prompt: bool = False) -> bool:
        """Begins a step and returns True if it predicts.

        It predicts if `may_predict` is set and recent predictions were right often enough, and now
        and then as a probe. `is_prompt` says whether its accesses count as a prompt's or as decoded
        tokens'.
        """
        return bool(self._library.sharpi_feed_begin_step(self.handle, may_predict, is_prompt))

    def set_sequences(self, sequences: Sequence[int], begins: Sequence[bool]) -> None:
        """Sets the sequence of each row of the next steps; `begins` marks rows of new texts."""
        count = len(sequences)
        names, flags = (c_int32 * count)(*sequences), (c_uint8 * count)(*begins)
        if self._library.sharpi_feed_set_sequences(self.handle, names, flags, count):
            raise MemoryError("no memory for the predictor's sequences")

    def reset_sequence(self) -> None:
        """Tells the policy and the predictor that a new, unrelated text begins."""
        self._library.sharpi_feed_reset_sequence(self.handle)

    def counts(self) -> FeedCounts:
        """Returns the counts of predictions for decoded tokens since the start."""
        counts = FeedCounts()
        self._library.sharpi_feed_counts(self.handle, ctypes.byref(counts))
        return counts

    def check_step(self) -> None:
        """Raises ModelFileError if an expert could not be read, so that the step is invalid."""
        if self._library.sharpi_feed_take_failure(self.handle):
            raise self.store.read_error()


@cache
def _feed_library() -> ctypes.CDLL:
    """Returns the native library with types for the feed's functions."""
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
