"""Expert stats of invented runs."""

from sharpi.experts.layer_stats import HitCount, LayerStats, PhaseCounts
from sharpi.experts.stats.stats import ExpertStats, PredictionStats, SkewStats

EXPERT_BYTES = 1000


def a_phase(accesses: int) -> PhaseCounts:
    """Returns counts of which nine of ten hit, and half of the others were late."""
    hits = accesses * 9 // 10
    late = (accesses - hits) // 2
    loads = accesses - hits - late
    return PhaseCounts(
        accesses=accesses,
        hits=hits,
        late=late,
        loads=loads,
        bytes_loaded=loads * EXPERT_BYTES,
        stall_seconds=accesses / 1000,
        prefetched=accesses // 5,
        prefetch_used=accesses // 10,
        wasted_bytes=40 * accesses,
    )


def a_layer(layer: int, uses: tuple[int, ...], pinned: tuple[int, ...] = ()) -> LayerStats:
    """Returns a layer of which two fifths of the lookups are those of prompts."""
    prompt = sum(uses) * 2 // 5
    return LayerStats(
        layer=layer,
        num_slots=2,
        expert_bytes=EXPERT_BYTES,
        prompt=a_phase(prompt),
        decode=a_phase(sum(uses) - prompt),
        fills=1,
        bytes_read=sum(uses) * EXPERT_BYTES,
        uses=uses,
        pinned=pinned,
    )


def a_run() -> ExpertStats:
    """Returns stats of four decoded tokens and three layers, the last one without accesses."""
    return ExpertStats(
        model="tiny-moe.gguf",
        tier="RAM",
        policy="slru",
        num_experts=4,
        experts_per_token=2,
        num_prompt_tokens=20,
        num_tokens=5,
        num_beside=1,
        layers=(
            a_layer(0, (10, 20, 70, 0), (2,)),
            a_layer(2, (25, 25, 25, 25)),
            a_layer(3, (0,) * 4),
        ),
        before_pin=HitCount(50, 30),
        after_pin=HitCount(150, 150),
        prediction=PredictionStats(
            predictor="both",
            is_on=False,
            steps=4,
            predicted_steps=3,
            guessed=100,
            used=80,
            right=60,
            dropped=5,
            failed=1,
            bytes_moved=35_000,
        ),
        skew=SkewStats(batches=2, capacity_factor=0.45, busiest_share=2.5),
        notes=("prefetch switched itself off: it cost 3 % and saved 1 %",),
    )
