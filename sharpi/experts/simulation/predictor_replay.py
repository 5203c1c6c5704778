"""Measures the recall, precision and time of predictors on a trace."""

import time

from msgspec import Struct

from sharpi.experts.native.predictor_native import NativePredictor
from sharpi.experts.predictor import PREDICTORS
from sharpi.experts.trace.trace import Trace


class PredictorRow(Struct, frozen=True):
    """One predictor's results on a trace.

    In the recall, the experts of a text's first token count as not predicted.
    """

    predictor: str
    guesses: int  # experts predicted for each layer
    recall: float  # the share of the used experts that was predicted, 0 to 1
    precision: float  # the share of the predicted experts that was used, 0 to 1
    microseconds_per_token: float


def measure_predictors(trace: Trace) -> list[PredictorRow]:
    """Measures every predictor with budgets of `k` and `2 k` experts, for `k` experts per token."""
    k = trace.experts_per_token
    budgets = sorted({k, min(2 * k, trace.num_experts)})
    return [measure(trace, name, budget) for budget in budgets for name in PREDICTORS]


def measure(trace: Trace, name: str, budget: int) -> PredictorRow:
    """Measures one predictor that predicts `budget` experts before every layer of every token."""
    predictor = NativePredictor(name, trace.num_layers, trace.num_experts)
    try:
        begin = time.perf_counter()
        counts = predictor.replay(trace.steps, budget)
        seconds = time.perf_counter() - begin
    finally:
        predictor.close()
    return PredictorRow(
        predictor=name,
        guesses=budget,
        recall=counts.right / counts.used,
        precision=counts.right / max(1, counts.predicted),
        microseconds_per_token=1e6 * seconds / trace.num_tokens,
    )
