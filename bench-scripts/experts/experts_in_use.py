"""Measures slot policies, predictors and a warm start in the running engine.

Answers are sampled to the prompts in a file, one per line. Every run uses the same prompts and
seeds, so that all runs have the same routes. By default, half of the experts have a slot.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from sharpi.config import ExpertConfig, GenerationRequest, RunConfig, SamplingParams
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.experts.native.feed import PREDICTOR_NAMES
from sharpi.experts.policy_settings import POLICIES
from sharpi.experts.stats.stats import ExpertStats

WARM_TOKENS = 100


def main() -> None:
    """Parses the command line, runs, and prints a table for each comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("prompts", type=Path, help="a text file, one prompt a line")
    parser.add_argument("--slots", type=int, help="of a layer; half of the experts by default")
    parser.add_argument("-n", type=int, default=100, help="tokens after each prompt")
    options = parser.parse_args()
    prompts = [line for line in options.prompts.read_text("utf-8").splitlines() if line.strip()]
    with load_engine(RunConfig(options.model)) as engine:
        slots = options.slots or max(1, engine.model_config.num_experts // 2)
    runs = Runs(options.model, prompts, slots, options.n)
    for lines in (policies(runs), predictors(runs), warm_start(runs)):
        print(*lines, "", sep="\n")


class Runs:
    """Runs the same prompts repeatedly, each time in a new engine with other expert settings."""

    def __init__(self, model: Path, prompts: list[str], slots: int, num_tokens: int) -> None:
        self._model, self._slots = model, slots
        self._prompts, self._num_tokens = prompts, num_tokens

    def all_prompts(self, asked: ExpertConfig) -> ExpertStats:
        """Returns the expert statistics of a run over all prompts."""
        return self._run(asked, self._prompts, self._num_tokens)

    def first_tokens(self, asked: ExpertConfig) -> ExpertStats:
        """Returns the expert statistics of the first WARM_TOKENS tokens after the first prompt."""
        return self._run(asked, self._prompts[:1], WARM_TOKENS)

    def _run(self, asked: ExpertConfig, prompts: list[str], num_tokens: int) -> ExpertStats:
        with load_engine(RunConfig(self._model, moe_slots=self._slots, experts=asked)) as engine:
            for seed, prompt in enumerate(prompts):
                self._continue(engine, prompt, seed, num_tokens)
            stats = engine.expert_stats()
        if stats is None:
            raise SystemExit(f"{self._model}: has no routed experts")
        return stats

    @staticmethod
    def _continue(engine: Engine, prompt: str, seed: int, num_tokens: int) -> None:
        session = engine.session()
        ids = engine.tokenizer.encode(prompt, add_bos=True, parse_special=False)
        sampling = SamplingParams(seed=seed)
        request = GenerationRequest(num_tokens, ignore_end=True, sampling=sampling)
        for _ in session.generate(ids, request):
            pass
        session.reset()


def policies(runs: Runs) -> Iterator[str]:
    """Yields a line with hit rate and loads for every policy that works without prefetch."""
    yield f"{'policy, no prefetch':28}{'hits %':>8}{'loads/token':>13}"
    for name in POLICIES:
        stats = runs.all_prompts(ExpertConfig(policy=name, prefetch=False))
        if stats.policy == name:
            yield f"{name:28}{_hits(stats):>8}{_loads(stats):>13}"


def predictors(runs: Runs) -> Iterator[str]:
    """Yields a line with recall, precision and reads for every predictor."""
    heads = ("recall %", "precision %", "hits %", "late %", "loads/token", "early", "used")
    yield f"{'predictor':16}" + "".join(f"{head:>13}" for head in heads)
    for name in (*PREDICTOR_NAMES, "learned"):
        stats = runs.all_prompts(ExpertConfig(predictor=name))
        made = stats.prediction
        if made is None:
            continue
        late = f"{100 * stats.late / max(1, stats.hit_count.accesses):.2f}"
        figures = (_percent(made.recall), _percent(made.precision), _hits(stats), late)
        total = stats.total
        reads = (_loads(stats), str(total.prefetched), str(total.prefetch_used))
        yield f"{name:16}" + "".join(f"{figure:>13}" for figure in (*figures, *reads))
        yield from (f"  {note}" for note in stats.notes)


def warm_start(runs: Runs) -> Iterator[str]:
    """Yields a line with the first tokens' hit rates, without and with a profile of all prompts."""
    with TemporaryDirectory() as folder:
        cold = runs.first_tokens(ExpertConfig(prefetch=False))
        asked = ExpertConfig(prefetch=False, profile=Path(folder) / "profile.json")
        runs.all_prompts(asked)
        warm = runs.first_tokens(asked)
    yield f"first {WARM_TOKENS} tokens   hits % {_hits(cold)} without a profile, {_hits(warm)} with"


def _hits(stats: ExpertStats) -> str:
    return _percent(stats.hit_count.rate)


def _loads(stats: ExpertStats) -> str:
    return f"{stats.per_token(stats.loads) or 0:.2f}"


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.2f}"


if __name__ == "__main__":
    main()
