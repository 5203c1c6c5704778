"""Prometheus metrics of one server, in a separate registry, and the recent rate of tokens.

Counters and histograms are updated by events; gauges and the counts of experts come from the latest
ModelSnapshot.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from starlette.types import Scope

from sharpi.engine.sampling.generation_state import FinishInfo, TextDelta
from sharpi.serve.host.hosted_model import ExpertCounts, ModelSnapshot

_FIRST_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_INTER_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
WINDOW_SECONDS = 10.0
_PART_SECONDS = 0.1  # events within this time form one entry of the window
_TOKENS = {
    "prompt": "Prompt tokens computed.",
    "cached_prompt": "Prompt tokens found in the KV cache.",
    "generated": "Tokens generated.",
    "checked_draft": "Draft tokens that steps checked.",
    "accepted_draft": "Draft tokens that were right.",
}
_GAUGES = {  # fields of ModelSnapshot
    "answers_waiting": "Answers that are waiting.",
    "answers_running": "Answers that are running.",
    "kv_pages_in_use": "Pages of the KV cache used by running answers.",
    "kv_pages_kept": "Pages of the KV cache kept for later prompts.",
    "kv_pages": "All pages of the KV cache.",
    "model_loaded": "1 while the model is in memory.",
}


class TokenRate:
    """The rate of generated tokens over the last 10 seconds; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: deque[tuple[float, int]] = deque()
        self._count = 0

    def add(self, num_tokens: int) -> None:
        """Counts tokens as generated at the current time."""
        with self._lock:
            now = time.monotonic()
            start, before = self._times[-1] if self._times else (-1.0, 0)
            if now - start < _PART_SECONDS:
                self._times[-1] = start, before + num_tokens
            else:
                self._times.append((now, num_tokens))
            self._count += num_tokens
            self._forget()

    def per_second(self) -> float:
        """Returns the tokens per second since the oldest token of the window; 0 without tokens."""
        with self._lock:
            self._forget()
            if not self._times:
                return 0.0
            seconds = time.monotonic() - self._times[0][0]
            return self._count / max(seconds, 1.0)

    def _forget(self) -> None:
        oldest = time.monotonic() - WINDOW_SECONDS
        while self._times and self._times[0][0] < oldest:
            self._count -= self._times.popleft()[1]


class Metrics:
    """The Prometheus metrics of one server; `tokens` is the recent rate for the web page."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.tokens = TokenRate()
        self._requests = Counter(
            "sharpi_requests", "Requests answered.", ["route", "status"], registry=registry
        )
        self._answers = Counter(
            "sharpi_answers", "Answers ended, by reason.", ["reason"], registry=registry
        )
        self._tokens = {
            name: Counter(f"sharpi_{name}_tokens", text, registry=registry)
            for name, text in _TOKENS.items()
        }
        self._first_token = Histogram(
            "sharpi_first_token_seconds",
            "Time from a prompt to its first token.",
            buckets=_FIRST_TOKEN_BUCKETS,
            registry=registry,
        )
        self._inter_token = Histogram(
            "sharpi_inter_token_seconds",
            "Time from a token to the next.",
            buckets=_INTER_TOKEN_BUCKETS,
            registry=registry,
        )
        self._gauges = {
            name: Gauge(f"sharpi_{name}", text, registry=registry) for name, text in _GAUGES.items()
        }
        self._experts = _ExpertCollector()
        registry.register(self._experts)

    def reporter(
        self, label: Callable[[Scope], str], log: Callable[[str], None] | None
    ) -> Callable[[Scope, int, float, str], None]:
        """Returns what counts a request by label and status, of which 499 is a lost client."""

        def report(scope: Scope, status: int, seconds: float, request_id: str) -> None:
            self._requests.labels(label(scope), str(status)).inc()
            if log is not None:
                place = f"{scope['method']} {scope['path']!r}"
                log(f"{place} {status} {seconds:.3f} s {request_id}")

        return report

    def answer(self) -> "AnswerMeter":
        """Returns a new AnswerMeter, whose time to the first token begins now."""
        return AnswerMeter(self)

    def text(self, snapshot: ModelSnapshot) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        for name, gauge in self._gauges.items():
            gauge.set(getattr(snapshot, name))
        self._experts.counts = snapshot.experts
        return generate_latest(self._registry)


class AnswerMeter:
    """Measures the token times of one answer; used on the engine's thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._latest = time.perf_counter()
        self._has_begun = False

    def delta(self, delta: TextDelta) -> None:
        """Records the time and the number of new tokens in a text delta, if it has any."""
        count = len(delta.tokens)
        if not count:
            return
        now, metrics = time.perf_counter(), self._metrics
        if self._has_begun:
            for _ in range(count):
                metrics._inter_token.observe((now - self._latest) / count)
        else:
            metrics._first_token.observe(now - self._latest)
        self._has_begun, self._latest = True, now
        metrics._tokens["generated"].inc(count)
        metrics.tokens.add(count)

    def end(self, finish_info: FinishInfo) -> None:
        """Records the reason, prompt tokens and draft counts of an answer that ended."""
        tokens, timings = self._metrics._tokens, finish_info.timings
        self._metrics._answers.labels(finish_info.reason).inc()
        tokens["prompt"].inc(timings.num_prompt_tokens)
        tokens["cached_prompt"].inc(timings.num_cached_tokens)
        if (drafts := timings.drafts) is not None:
            tokens["checked_draft"].inc(drafts.num_checked)
            tokens["accepted_draft"].inc(drafts.num_accepted)


class _ExpertCollector(Collector):
    """A Prometheus collector of expert counts, which restart at 0 when the model is reloaded."""

    def __init__(self) -> None:
        self.counts: ExpertCounts | None = None

    def collect(self) -> Iterator[CounterMetricFamily]:
        for name, (text, value) in (self.counts or {}).items():
            yield CounterMetricFamily(f"sharpi_expert_{name}", text, value=value)
