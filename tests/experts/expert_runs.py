"""Expert stats of invented runs."""

from sharpi.experts.stats.stats import ExpertStats, HitCount, LayerStats, PredictionStats


def a_layer(layer: int, uses: tuple[int, ...], pinned: tuple[int, ...] = ()) -> LayerStats:
    """Returns a layer in which nine of ten accesses hit, and one was late."""
    accesses = sum(uses)
    hits = accesses * 9 // 10
    return LayerStats(
        layer=layer,
        num_slots=2,
        accesses=accesses,
        hits=hits,
        late=accesses - hits,
        loads=accesses // 20,
        bytes_read=accesses * 1000,
        stall_seconds=accesses / 1000,
        uses=uses,
        pinned=pinned,
    )


def a_run() -> ExpertStats:
    """Returns stats of four tokens and three layers, the last one without accesses."""
    return ExpertStats(
        model="tiny-moe.gguf",
        policy="slru",
        num_experts=4,
        experts_per_token=2,
        num_tokens=4,
        layers=(
            a_layer(0, (10, 20, 70, 0), (2,)),
            a_layer(2, (25, 25, 25, 25)),
            a_layer(3, (0,) * 4),
        ),
        before_pin=HitCount(50, 30),
        after_pin=HitCount(150, 120),
        prediction=PredictionStats(
            predictor="both",
            is_on=False,
            guessed=100,
            used=80,
            right=60,
            prefetched=40,
            prefetch_used=30,
            late=20,
            dropped=5,
            failed=1,
            bytes_moved=35_000,
            wasted_bytes=9_000,
        ),
        notes=("prefetch switched itself off: it cost 3 % and saved 1 %",),
    )
