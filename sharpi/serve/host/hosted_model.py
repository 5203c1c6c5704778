"""HostedModel: loads and unloads the model of a server, and records why it failed."""

import gc
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct, field

from sharpi.engine.engine import Engine
from sharpi.engine.mapped_file import MappedFile, check_not_empty
from sharpi.engine.sampling.generation_state import FinishInfo
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.errors import ClusterError, ModelFileError
from sharpi.experts.stats.stats import ExpertStats
from sharpi.serve.http.errors import unavailable, unreadable_model
from sharpi.system.process import trim_heaps

_MORE_BYTES = 1 << 20  # bytes of a body beyond its prompt, for schemas, tools and names
_ESCAPE = 3  # bytes of JSON per byte of text, if each character is a \u escape
MOST_BODY_BYTES = 32 << 20


class Loaded(Struct, frozen=True, eq=False):
    """A loaded model; only the engine's thread may step or read it."""

    engine: Engine
    scheduler: Scheduler
    # Objects that requests build once per model, by type; dropped with the model, because they
    # would keep its file mapped.
    per_model_cache: dict[type, Any] = field(default_factory=dict)

    @property
    def max_body_bytes(self) -> int:
        """The most bytes of a request body whose prompt can fit the context, at most 32 MiB."""
        text = self.engine.context_size * self.engine.tokenizer.longest_token * _ESCAPE
        return min(text + _MORE_BYTES, MOST_BODY_BYTES)


class HostedModel:
    """Loads the model and closes it again; only the engine's thread calls its methods.

    Any thread may read `loaded`, `is_loading` and `failure`. `failure` says why loading or an
    answer failed, and is None after the next success. `log` is called with lines for the log.
    """

    def __init__(
        self, load: Callable[[], Engine], max_parallel: int, log: Callable[[str], None]
    ) -> None:
        self._load, self._max_parallel, self._log = load, max_parallel, log
        self._has_changed = False  # whether the file changed since the model was first loaded
        self.loaded: Loaded | None = None
        self.is_loading = False
        self.failure: str | None = None
        # The error of an answer after which the model cannot be used; None normally.
        self.fatal: ClusterError | ModelFileError | None = None

    def load(self) -> Loaded:
        """Loads the model, or raises its error; a file that became zeros raises ModelFileError."""
        self.is_loading = True
        try:
            engine = self._load()
            if self._has_changed:
                _require_content(engine)
            self.loaded = Loaded(engine, Scheduler(engine, self._max_parallel))
            self.failure = self.fatal = None
        finally:
            self.is_loading = False
        return self.loaded

    def record_step_error(self, error: Exception, num_answers: int) -> FinishInfo:
        """Records an error that ends all answers; returns the FinishInfo for them."""
        if isinstance(error, ModelFileError):
            self.failure = "the model's file was changed or cannot be read"
            return self.mark_file_changed(error)
        if isinstance(error, ClusterError):  # the next request loads the model again
            self.failure = "a machine that runs part of the model is lost"
            self._log(f"the model is unloaded: {error}")
            lost = "a machine that runs part of the model is lost; the server's log says which"
            return FinishInfo("error", error=unavailable(lost))
        self._log(f"a step failed, and {num_answers} answers with it: {error!r}")
        return FinishInfo("error", error=error)

    def is_fatal(self, error: BaseException, file: MappedFile) -> bool:
        """Returns whether an answer's error makes the whole model unusable.

        A ModelFileError does so only if the file was replaced. Otherwise a client could make the
        server load the model again and again. A ClusterError always does; other errors never do.
        """
        if isinstance(error, ModelFileError) and not file.is_replaced():
            self.failure = "the model's file holds what makes no sense"
            self._log(f"an answer failed: {error}")
            return False
        if not isinstance(error, ClusterError | ModelFileError):
            return False
        self.fatal = error
        return True

    def mark_file_changed(self, error: ModelFileError) -> FinishInfo:
        """Records a changed file, which is checked when loaded; returns open answers' end."""
        self._has_changed = True
        self._log(f"the model is unloaded: {error}")
        return FinishInfo("error", error=unreadable_model())

    def close(self, loaded: Loaded) -> None:
        """Closes a model that `loaded` no longer holds, and logs the notes of its engine."""
        try:
            loaded.engine.close()
            notes = loaded.engine.exit_notes
        except Exception as error:
            notes = (f"closing the model failed: {error!r}",)
        for note in notes:
            self._log(note)


def _require_content(engine: Engine) -> None:
    """Closes the engine and raises ModelFileError if its file holds only zeros."""
    try:
        check_not_empty(engine.file)
    except ModelFileError:
        engine.close()
        raise


def release_memory() -> None:
    """Frees reference cycles, which may hold file mappings, and trims the heap."""
    gc.unfreeze()  # the objects that a server froze at its start
    gc.collect()
    gc.freeze()  # later collections would scan the remaining objects, and delay all threads
    trim_heaps()


ExpertCounts: TypeAlias = dict[str, tuple[str, float]]  # name: (description, count)


class ModelSnapshot(Struct, frozen=True):
    """The current use of a model, for the metrics; all fields are 0 if none is loaded."""

    model_loaded: bool = False
    answers_waiting: int = 0
    answers_running: int = 0
    kv_pages_in_use: int = 0
    kv_pages_kept: int = 0
    kv_pages: int = 0
    experts: ExpertCounts | None = None  # None if they are not counted


def take_snapshot(loaded: Loaded) -> ModelSnapshot:
    """Returns a snapshot; call it on the engine's thread."""
    scheduler, stats = loaded.scheduler, loaded.engine.expert_stats()
    return ModelSnapshot(
        model_loaded=True,
        answers_waiting=scheduler.num_waiting,
        answers_running=scheduler.num_running,
        kv_pages_in_use=scheduler.cache.num_in_use,
        kv_pages_kept=scheduler.cache.num_evictable,
        kv_pages=scheduler.cache.num_pages,
        experts=None if stats is None else _counts(stats),
    )


def _counts(stats: ExpertStats) -> ExpertCounts:
    total = stats.total
    counts: ExpertCounts = {
        "lookups": ("Experts that steps needed.", total.accesses),
        "hits": ("Needed experts that were resident.", total.hits),
        "misses": (
            "Needed experts that were not resident.",
            total.accesses - total.hits - total.mapped,
        ),
        "late": ("Needed experts that were in flight.", total.late),
        "loads": ("Experts that were read while a step waited.", total.loads),
        "computed": ("Experts that the CPU computed for a GPU.", total.computed),
        "remote": ("Experts that other machines computed.", total.remote),
        "mapped": ("Experts that were used in the mapped file.", total.mapped),
        "read_bytes": ("Bytes of experts read.", stats.bytes_read),
        "stall_seconds": ("Time that steps waited for experts.", total.stall_seconds),
    }
    predictions = stats.prediction
    if predictions is not None:
        counts |= {
            "predicted": ("Experts that were predicted.", predictions.guessed),
            "predicted_right": ("Predicted experts that were used.", predictions.right),
            "prefetched": ("Experts that were read ahead.", total.prefetched),
            "prefetch_used": ("Experts read ahead that were used.", total.prefetch_used),
            "prefetch_wasted_bytes": (
                "Bytes read ahead for experts that were not used.",
                total.wasted_bytes,
            ),
        }
    return counts
