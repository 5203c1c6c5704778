"""`sharpi bench`: prefill and decode speed, compared with the limits of the machine."""

import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.inputs import JsonOption, ModelArgument, ModelOption, find_model
from sharpi.cli.output.loading import open_engine
from sharpi.cli.run_config import OptionSources, complete
from sharpi.errors import UsageError
from sharpi.settings import RunConfig, SpeculationConfig
from sharpi.settings.option import LARGEST_COUNT, Option, Without
from sharpi.settings.run import CONTEXT
from sharpi.units import format_bytes, plural

if TYPE_CHECKING:
    from sharpi.engine.measure.benchmark import BenchmarkRow, BenchmarkTest

_COLUMNS = ("test", "threads", "tokens/s", "weights read", "GB/s", "of limit", "of peak")
_LINE = "{:<14} {:>7} {:>16} {:>16} {:>6} {:>8} {:>7}"
_WIDTH = 80  # columns of every line


def _counts(text: str) -> tuple[int, ...]:
    """Returns the numbers in a text such as 128,512; raises ValueError for others."""
    for item in text.split(","):
        if not item.strip().isdecimal() or int(item) > LARGEST_COUNT:
            raise ValueError(f"{item.strip()!r} in {text!r} is not a count, as in '128,512'")
    return tuple(map(int, text.split(",")))


class Tests(Struct, frozen=True):
    """The tests to run; names and defaults are llama-bench's."""

    GROUP: ClassVar = "Tests"

    n_prompt: Annotated[
        tuple[int, ...],
        Option("-p --n-prompt N,...", "Tokens of the prefill tests; 0: none.", parse=_counts),
    ] = (512,)
    n_gen: Annotated[
        tuple[int, ...],
        Option("-n --n-gen N,...", "Tokens of the decode tests; 0: none.", parse=_counts),
    ] = (128,)
    n_depth: Annotated[
        tuple[int, ...],
        Option("-d --n-depth N,...", "Tokens in the KV cache before a test begins.", parse=_counts),
    ] = (0,)
    repetitions: Annotated[
        int, Option("-r --repetitions N", "Runs of each test.", min=1, max=10000)
    ] = 5


def bench(
    context: typer.Context,
    options: Tests,
    config: Annotated[RunConfig, Without((CONTEXT,))],
    model: ModelArgument = None,
    model_file: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure prefill and decode speed.

    Each test (ppN: prefill of N tokens, tgN: decode of N tokens) is warmed up once and then
    repeated; mean and deviation are shown. GB/s counts bytes of weights; the limit is reading the
    same mapped file with as many threads, and the peak is that of the int8 instructions in use. A
    GPU is compared with reading its own memory and, for experts in RAM, with reading over the bus.
    With --spec-type, ckN measures what a check of drafts costs: steps of N tokens.
    """
    config = complete(context, config, find_model(context, model))
    tests = [*_tests(options), *_checks(context, config.speculation)]
    size = max(test.num_positions for test in tests)
    config = replace(config, context_size=size)
    with open_engine(config) as engine:
        from sharpi.engine.measure.benchmark import run_benchmark

        rows = run_benchmark(engine, tests, options.repetitions)
        if as_json:
            print(json.dumps([row.record() for row in rows], indent=2))
        else:
            _print_table(rows)


def _tests(options: Tests) -> "Iterator[BenchmarkTest]":
    from sharpi.engine.measure.benchmark import BenchmarkTest

    prompts, lengths = options.n_prompt, options.n_gen
    if not any(prompts) and not any(lengths):
        raise UsageError("nothing to measure: -p and -n are both 0")
    for depth in options.n_depth:
        yield from (BenchmarkTest("pp", count, depth) for count in prompts if count)
        yield from (BenchmarkTest("tg", count, depth) for count in lengths if count)


def _checks(context: typer.Context, drafts: SpeculationConfig) -> "Iterator[BenchmarkTest]":
    """Yields tests of steps with 1 to 8 tokens, or --spec-draft-n-max plus 1, with --spec-type."""
    from sharpi.engine.measure.benchmark import BenchmarkTest

    if not drafts.kinds or not OptionSources(context).has("spec_type"):
        return
    most = 8 if drafts.max_drafts is None else 1 + drafts.max_drafts
    yield from (BenchmarkTest("ck", rows) for rows in range(1, most + 1))


def _print_table(rows: "Iterable[BenchmarkRow]") -> None:
    """Prints each row as soon as it is measured, then the machine's limits and the settings."""
    limits: dict[str, str] = {}
    print(_LINE.format(*_COLUMNS), flush=True)
    for row in rows:
        print(_line(row), flush=True)
        limits.update(_limits(row))
    found = ", ".join(f"{rate} {what}".strip() for what, rate in limits.items())
    print(textwrap.fill(f"limits: {found}", _WIDTH))
    print(textwrap.fill(_settings(row), _WIDTH))


def _line(row: "BenchmarkRow") -> str:
    digits = 2 if row.tokens_per_second < 1000 else 1
    return _LINE.format(
        row.test,
        "" if row.threads is None else row.threads,
        f"{row.tokens_per_second:.{digits}f} ± {row.deviation:.{digits}f}",
        f"{format_bytes(round(row.bytes_per_pass))}/{_pass(row)}",
        f"{row.gigabytes_per_second:.2f}",
        _percent(row.percent_of_limit),
        _percent(row.percent_of_int8_peak),
    ).rstrip()


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} %"


def _pass(row: "BenchmarkRow") -> str:
    return "batch" if row.test.startswith("pp") else "check" if "ck" in row.test else "token"


def _limits(row: "BenchmarkRow") -> Iterator[tuple[str, str]]:
    """Yields names and values of limits, such as ("reading with 8 threads", "40.0 GB/s")."""
    threads = row.threads
    with_threads = "on the GPU" if threads is None else f"with {plural(threads, 'thread')}"
    if row.read_limit_gigabytes_per_second is None:
        shared = "on both processors" if row.device else "on several machines"
        yield "", f"none where layers are {shared}"
    else:
        yield f"reading {with_threads}", f"{row.read_limit_gigabytes_per_second:.1f} GB/s"
    if row.int8_peak_gigaoperations_per_second is not None:
        yield f"int8 {with_threads}", f"{row.int8_peak_gigaoperations_per_second:.0f} GOP/s"


def _settings(row: "BenchmarkRow") -> str:
    """Returns a line with the processors and the settings, which are equal in all rows."""
    processors = " and ".join(name for name in (row.instruction_set, row.device) if name)
    launches = row.launches_per_token
    kernels = "" if launches is None else f", {launches} kernels per token on the GPU"
    return f"{processors}, {row.precision} activations, batches of {row.batch_size}{kernels}"
