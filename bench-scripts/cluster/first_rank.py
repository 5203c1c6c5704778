"""The process that runs the tests of several_machines.py: a single rank, or the first of several.

It reads JSON lines from stdin, first the settings, then tests, and replies to each with a JSON line
on stdout.
"""

import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from sharpi.cli.ranks import join
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sampling.generation_state import TextDelta
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.settings import (
    ClusterConfig,
    GenerationRequest,
    RemoteExperts,
    RunConfig,
    SamplingParams,
)

_PROMPT = 16  # tokens before those that a test of decoding counts
_WARM_UP = 4  # tokens that are decoded before the clock starts


class FirstRank:
    """A loaded model with its scheduler, on which tests are timed."""

    def __init__(self, engine: Engine, num_parallel: int) -> None:
        self._engine = engine
        self._scheduler = Scheduler(engine, num_parallel)
        self._ids = np.random.default_rng(1)
        self._counts: list[int] = []
        self._num_asked = 0  # the seed of the next answer

    def prompt(self, num_tokens: int) -> float:
        """Returns the seconds from submitting a random prompt to the end of its first token."""
        start = time.perf_counter()
        self._submit(num_tokens, 1)
        while self._scheduler.step():
            pass
        return time.perf_counter() - start

    def decode(self, num_sequences: int, num_tokens: int, temperature: float = 0) -> float:
        """Returns the seconds to decode `num_tokens` in each sequence, without prefill and warm-up.

        All sequences decode together in each step.
        """
        self._counts = []
        for _ in range(num_sequences):
            self._submit(_PROMPT, num_tokens + _WARM_UP + 8, temperature)
        while min(self._counts) < _WARM_UP:
            self._scheduler.step()
        wanted = sum(self._counts) + num_tokens * num_sequences
        start = time.perf_counter()
        while sum(self._counts) < wanted:
            self._scheduler.step()
        seconds = time.perf_counter() - start
        while self._scheduler.step():
            pass
        return seconds

    def _submit(self, num_prompt: int, num_tokens: int, temperature: float = 0) -> None:
        size = self._engine.runner.vocab_size
        ids, index = self._ids.integers(3, size, num_prompt).tolist(), len(self._counts)
        self._counts.append(0)
        self._num_asked += 1

        def count(delta: TextDelta) -> None:
            self._counts[index] += len(delta.tokens)

        asked = GenerationRequest(
            max_tokens=num_tokens,
            sampling=SamplingParams(temperature=temperature, seed=self._num_asked),
            ignore_end=True,
        )
        self._scheduler.cache.clear()
        self._scheduler.submit(ids, asked, on_delta=count, on_end=lambda info: None)


def main() -> None:
    """Loads the model, then runs tests until stdin ends, and prints the ranks' reports."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())
    config = _config(**settings)
    cluster = config.cluster
    with nullcontext() if cluster is None else join(config, cluster) as cluster_loader:
        engine = load_engine(config, share=cluster_loader)
        rank = FirstRank(engine, config.num_parallel)
        print(json.dumps({"notes": engine.notes}), file=answers, flush=True)
        for line in sys.stdin:
            test = json.loads(line)
            name, before = test.pop("test"), _wire(cluster_loader)
            seconds = rank.prompt(**test) if name == "prompt" else rank.decode(**test)
            grown = {key: value - before[key] for key, value in _wire(cluster_loader).items()}
            print(json.dumps({"seconds": seconds, "wire": grown}), file=answers, flush=True)
        engine.close()
        reports = {} if cluster_loader is None else cluster_loader.reports
        print(json.dumps(_plain(reports)), file=answers, flush=True)


def _wire(cluster_loader: Any) -> dict[str, float]:
    return {} if cluster_loader is None else _fields(cluster_loader.link)


def _fields(struct: Any) -> dict[str, float]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _plain(reports: dict[int, Any]) -> dict[int, Any]:
    return {
        rank: _fields(each.link) | {"steps": each.num_steps, "busy_seconds": each.busy_seconds}
        for rank, each in reports.items()
    }


def _config(
    model: str, hosts: list[str], port: int, context_size: int, num_parallel: int,
    ram: int | None, remote_experts: RemoteExperts,
) -> RunConfig:  # fmt: skip
    cluster = ClusterConfig(tuple(hosts), port=port, remote_experts=remote_experts)
    return RunConfig(
        Path(model), context_size=context_size, num_parallel=num_parallel, num_threads=1,
        cluster=cluster if hosts else None, ram=ram,
    )  # fmt: skip


if __name__ == "__main__":
    main()
