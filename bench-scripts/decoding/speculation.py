"""Measures decode without drafts, with drafts of fixed length, and with drafts of adaptive length.

Three texts are continued: a mostly copied letter, code, and a story. With `--acceptance`, drafts
are scripted and right with that probability, for models with random weights. `--rows` measures
steps of 1 to 8 rows instead, which shows the cost of a check. With `--ram` below the model's size,
experts are read from the disk. With `--limit`, everything runs in a memory cgroup of that size, and
with `--read-rate`, the disk is slowed down to that many bytes per second; both require root. The
bytes that steps of each length read bound the gain, and are printed. All modes alternate in rounds,
and medians are printed.
"""

import argparse
import gc
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

import numpy as np
from decoding.step_counts import Step, StepCounts, bounds, report
from memory.memory_group import DiskGroup, MemoryGroup

from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence as TokenSequence
from sharpi.errors import SharpiError
from sharpi.settings import DraftKind, GenerationRequest, RunConfig, SamplingParams
from sharpi.settings import SpeculationConfig as Speculation
from sharpi.speculation.draft import Draft
from sharpi.units import parse_size

FREE: tuple[DraftKind, ...] = ("ngram", "suffix")
MODES = {
    "off": Speculation(),
    "fixed 4": Speculation(kinds=FREE, max_drafts=4),
    "rule": Speculation(kinds=FREE, is_auto=True),
}
STORY = "Once upon a time, there was a fox who lived at the edge of a dark forest. One evening"
CODE = '''class Stack:
    """A stack of values."""

    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop()


class Queue:
    """A queue of values."""

    def __init__(self):
'''
LETTER = """Dear Ms Miller,

thank you for your order of 14 March. The three lamps and the small table left our warehouse in
Bremen this morning and should reach you by Thursday. The chairs that you asked about are made to
order, which takes about six weeks. If you would like to have them in green instead of blue, please
write before Friday, so that the workshop can still change the fabric. The invoice is enclosed.

With kind regards,
Peter Brown
"""
EDIT = f"The letter:\n\n{LETTER}\nThe same letter again, word for word:\n\n{LETTER[:60]}"
TEXTS = {"edit": EDIT, "code": CODE, "story": STORY}


class Measurement(NamedTuple):
    """The measurements of one answer, with means per step."""

    speed: float  # tokens per second of decode
    tokens_per_step: float
    experts_per_step: float  # distinct experts in a layer
    ids: list[int]
    steps: list[Step]


class Scripted:
    """A drafter that knows the answer, and drafts each token right with a given probability."""

    kind: DraftKind = "draft"
    is_free = True

    def __init__(self, text: Sequence[int], acceptance: float) -> None:
        self._text, self._acceptance = text, acceptance
        self._dice, self._num_known = random.Random(1), 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Advances in the known text by the number of accepted tokens."""
        self._num_known += len(tokens)

    def propose(self, most: int) -> Draft | None:
        """Returns a draft of up to `most` next tokens of the known text; None at its end."""
        known = self._text[self._num_known : self._num_known + most]
        tokens = tuple(t ^ (self._dice.random() > self._acceptance) for t in known)
        return Draft(self.kind, tokens, (9,) * len(tokens)) if tokens else None

    def close(self) -> None:
        """Does nothing; the protocol of drafters requires it."""


def main() -> None:
    """Parses the command line, measures, and prints the results or an error."""
    options = parse_options()
    try:
        if options.limit or options.read_rate:
            sys.exit(run_limited(options))
        if options.rows:
            print_rows(options)
        else:
            for name in options.texts.split(","):
                print_modes(name, options)
    except SharpiError as error:
        print(f"speculation.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def parse_options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--texts", default="edit,code,story", help="with commas between them")
    parser.add_argument("-n", "--tokens", type=int, default=160, help="of each answer")
    parser.add_argument("--rounds", type=int, default=3, help="of all ways, in turns")
    parser.add_argument("-t", "--threads", type=int, default=None)
    parser.add_argument("--ways", default=",".join(MODES), help="with commas between them")
    parser.add_argument(
        "--temperature", type=float, default=0.0, help="of the answers; at 1 they repeat little"
    )
    parser.add_argument("--acceptance", type=float, default=None, help="of scripted drafts")
    parser.add_argument("--ram", type=int, default=None, help="bytes for the model")
    parser.add_argument("--rows", action="store_true", help="measure steps of 1 to 8 rows")
    parser.add_argument("--limit", help="of a memory cgroup, such as 2800MB")
    parser.add_argument("--read-rate", help="of the disk in it, bytes per second, such as 1GB")
    return parser.parse_args()


def run_limited(options: argparse.Namespace) -> int:
    """Runs this program again under the limits of memory and disk rate; returns its exit code."""
    arguments = iter(sys.argv)
    own = [a for a in arguments if not (a in ("--limit", "--read-rate") and next(arguments))]
    with ExitStack() as groups:
        launcher: list[str] = []
        if options.limit:
            launcher += groups.enter_context(MemoryGroup(parse_size(options.limit))).launcher
        if options.read_rate:
            rate = parse_size(options.read_rate)
            launcher += groups.enter_context(DiskGroup(rate, options.model)).launcher
        return subprocess.call([*launcher, sys.executable, *own])


def engine_of(options: argparse.Namespace, speculation: Speculation) -> Engine:
    """Loads the model on the CPU with one mode of speculation."""
    return load_engine(
        RunConfig(
            model=options.model,
            context_size=2048,
            num_threads=options.threads,
            device="cpu",
            ram=options.ram,
            speculation=speculation,
        )
    )


def print_modes(name: str, options: argparse.Namespace) -> None:
    """Measures all modes of speculation on one text, and prints a line for each mode."""
    measured: dict[str, list[Measurement]] = {mode: [] for mode in options.ways.split(",")}
    known: list[int] = []
    for _ in range(options.rounds):
        for mode in measured:
            measured[mode].append(measure_in_new_engine(mode, TEXTS[name], known, options))
            known = known or measured["off"][0].ids
    assert all(one.ids == known for own in measured.values() for one in own), "texts differ"
    for mode, own in measured.items():
        ratios = [one.speed / off.speed for one, off in zip(own, measured["off"], strict=True)]
        print(
            f"{name:6} {mode:8} {median(one.speed for one in own):8.1f} tokens/s"
            f" {statistics.median(ratios):5.2f} times off ({min(ratios):.2f} to {max(ratios):.2f})"
            f" {own[-1].tokens_per_step:5.2f} tokens a step"
            f" {own[-1].experts_per_step:6.1f} experts a layer",
            flush=True,
        )
        steps = [step for one in own for step in one.steps]
        print(*report(steps), sep="\n", end="\n" if steps[0].accesses else "")
        if mode != "off":
            alone = [step for one in measured["off"] for step in one.steps]
            print(*(f"{line}\n" for line in bounds(alone, steps)), sep="", end="", flush=True)


def measure_in_new_engine(
    mode: str, text: str, known: list[int], options: argparse.Namespace
) -> Measurement:
    """Measures one mode in a new engine, and frees the engine's memory afterwards."""
    with engine_of(options, scripted(MODES[mode], options)) as engine:
        found = measure(engine, text, known, options)
    del engine
    gc.collect()
    return found


def scripted(speculation: Speculation, options: argparse.Namespace) -> Speculation:
    """Replaces the drafters of a mode by the scripted drafter if `--acceptance` is given."""
    if options.acceptance is None or not speculation.is_on:
        return speculation
    return Speculation(
        kinds=("draft",), is_auto=speculation.is_auto, max_drafts=speculation.max_drafts
    )


def measure(
    engine: Engine, text: str, known: list[int], options: argparse.Namespace
) -> Measurement:
    """Measures one answer of an engine, after a short warm-up answer.

    `known`: the token ids of the answer, for scripted drafts.
    """
    prompt = engine.tokenizer.encode(text, add_bos=True, parse_special=False)
    if options.acceptance is not None:
        drafter = [*prompt, *known], options.acceptance
        engine.speculator._model_drafters = lambda: [Scripted(*drafter)]
    session = engine.session()
    other = TEXTS["code"] if text != TEXTS["code"] else TEXTS["story"]
    warm_up = engine.tokenizer.encode(other, add_bos=True, parse_special=False)
    list(session.generate(warm_up, request(16, options)))
    counts = StepCounts(engine)
    generation = session.generate(prompt, request(options.tokens, options))
    list(generation)
    drafts = engine.speculator.statistics
    return Measurement(
        generation.timings.decode_tokens_per_second,
        drafts.tokens_per_step or 1.0,
        statistics.fmean(counts.distinct) if counts.distinct else 0.0,
        generation.ids,
        counts.steps,
    )


def request(num_tokens: int, options: argparse.Namespace) -> GenerationRequest:
    """Returns a request of `num_tokens` with a fixed seed, so that all rounds are equal."""
    sampling = SamplingParams(temperature=options.temperature, seed=1)
    return GenerationRequest(max_tokens=num_tokens, ignore_end=True, sampling=sampling)


def print_rows(options: argparse.Namespace) -> None:
    """Measures and prints steps of 1 to 8 rows, with logits of all rows, in alternation."""
    with engine_of(options, Speculation(kinds=FREE)) as engine:
        seconds = dict(row_seconds(engine, 8 * options.rounds))
    for rows, own in seconds.items():
        print(
            f"{rows} rows {1e3 * own:8.2f} ms, {own / seconds[1]:5.2f} times one row,"
            f" {rows / own:8.1f} tokens/s"
        )


def row_seconds(engine: Engine, rounds: int) -> Iterator[tuple[int, float]]:
    """Yields each number of rows, 1 to 8, with the median seconds of its steps."""
    sequence = TokenSequence(engine.runner)
    ids = np.random.default_rng(1).integers(3, 1000, 256).tolist()
    sequence.extend(ids[:128])
    taken: dict[int, list[float]] = {rows: [] for rows in range(1, 9)}
    for i in range(rounds + 1):
        for rows, own in taken.items():
            part = ids[8 * i % 200 :][:rows]
            start = time.perf_counter()
            sequence.extend_checked(part)
            if i:
                own.append(time.perf_counter() - start)
        sequence.truncate(128)
    yield from ((rows, statistics.median(own)) for rows, own in taken.items())


def median(values: Iterator[float]) -> float:
    """Returns the median of an iterator's values."""
    return statistics.median(list(values))


if __name__ == "__main__":
    main()
