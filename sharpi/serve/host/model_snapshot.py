"""ModelSnapshot: the answers, KV cache pages and expert counts of a model between two steps."""

from typing import TypeAlias

from msgspec import Struct

from sharpi.experts.stats.stats import ExpertStats
from sharpi.serve.host.loaded import Loaded

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
