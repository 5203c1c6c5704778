"""`sharpi simulate` and `stats`: what a run recorded of its experts, replayed and shown."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict, replace

from sharpi.cli.inputs import JsonOption
from sharpi.cli.run_config import OptionSources
from sharpi.errors import UsageError
from sharpi.settings.option import Option, local_option

if TYPE_CHECKING:
    from sharpi.experts.simulation.simulate import Simulation
    from sharpi.experts.trace.trace import Trace


_OF_POLICIES = (  # parameters
    *("admission", "load_budget", "moving_slots", "resident"),
    *("warmup_tokens", "warm_pin", "warm_pin_after"),
)
_WARM_UP_TOKENS = 4096  # decoded tokens in which `--resident frequency` counts expert uses
_WARM_PIN_AFTER = 512  # expert accesses before --warm-pin pins experts
_DEFAULT_POLICY = "learned-prefetch"  # the default for slots in RAM


def simulate(
    context: typer.Context,
    trace_file: Annotated[Path, Option("TRACE", "A trace, an .npz file.")],
    slots: Annotated[str, local_option("--slots N,...", "Slots for experts in each layer.")] = "8",
    policy: Annotated[
        str, local_option("--policy NAME,...", "Policies to replay; 'optimum' is one of them.")
    ] = "all",
    tokens: Annotated[
        int | None,
        local_option("--tokens N", "Replay only the first N tokens.", min=1, default="all"),
    ] = None,
    admission: Annotated[
        bool,
        local_option(
            "--admission/--no-admission",
            "slru: a miss takes a slot only if it was used more often lately than the victim.",
        ),
    ] = False,
    load_budget: Annotated[
        float | None,
        local_option(
            "--load-budget N",
            "learned-prefetch: prefetches per token.",
            min=0,
            default="a tenth of a token's lookups",
        ),
    ] = None,
    moving_slots: Annotated[
        bool, local_option("--moving-slots/--fixed-slots", "learned: layers exchange their slots.")
    ] = False,
    resident: Annotated[
        str | None,
        local_option(
            "--resident SET",
            "static: first-n, frequency (the most used, chosen anew until --warmup-tokens are "
            "counted) or ids as in 1,2,5 or 0-7.",
            default="first-n",
        ),
    ] = None,
    warmup_tokens: Annotated[
        int | None,
        local_option(
            "--warmup-tokens N",
            "static: tokens in which --resident frequency counts uses; it begins with the first"
            " experts.",
            min=1,
            default=f"{_WARM_UP_TOKENS}",
        ),
    ] = None,
    warm_pin: Annotated[
        int,
        local_option(
            "--warm-pin N",
            "Pin the N most used experts of each layer; a line says what that gains or loses.",
            min=0,
        ),
    ] = 0,
    warm_pin_after: Annotated[
        int | None,
        local_option(
            "--warm-pin-after N",
            "Expert accesses before the pin.",
            min=0,
            default=f"{_WARM_PIN_AFTER}",
        ),
    ] = None,
    predictors: Annotated[
        bool, local_option("--predictors", "Measure the predictors instead of the policies.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Replay a trace of routes through the slot policies.

    Prints for each policy, and for the best possible one without prefetch (optimum), how many of
    the experts were hits, and how many were loaded. Bytes need a trace with expert sizes, such as
    those of --moe-trace.
    """
    from sharpi.experts.simulation.simulate import Simulation, refuse_idle
    from sharpi.experts.trace.trace import read_trace

    sources = OptionSources(context)
    given = [each for each in _OF_POLICIES if context.params[each] is not False]
    asked = [sources.name(each) for each in given if sources.by_flag(each)]
    _refuse_alone(asked, resident, predictors=predictors)
    numbers, names = _slot_numbers(slots), _policies(policy)
    trace = read_trace(trace_file)
    if max(numbers) > trace.num_experts:
        raise UsageError(f"--slots {max(numbers)}: the trace has {trace.num_experts} experts")
    refuse_idle(asked, names)
    sets = _resident(resident or "first-n", trace)
    if tokens is not None:
        trace = trace.first(tokens)
    if predictors:
        return _report_predictors(trace, as_json)
    warm_up = (warmup_tokens or _WARM_UP_TOKENS) if resident == "frequency" else None
    _note_short(trace, warm_up)
    pin_after = _WARM_PIN_AFTER if warm_pin_after is None else warm_pin_after
    simulation = Simulation(
        admission, load_budget, sets, moving_slots, warm_pin, pin_after, warm_up
    )
    _report(trace, names, numbers, simulation, as_json)


def _refuse_alone(asked: list[str], resident: str | None, *, predictors: bool) -> None:
    """Raises UsageError for a flag without the flag that it needs, or beside --predictors."""
    if predictors and asked:
        raise UsageError(f"{asked[0]} is for policies; --predictors measures none")
    if "--warm-pin-after" in asked and "--warm-pin" not in asked:
        raise UsageError("--warm-pin-after needs --warm-pin N: nothing is to be pinned")
    if "--warmup-tokens" in asked and resident != "frequency":
        raise UsageError("--warmup-tokens needs --resident frequency: no other set is counted")


def _note_short(trace: "Trace", warm_up: int | None) -> None:
    """Prints a note if a trace has no tokens after the `warm_up` tokens that count expert uses."""
    if warm_up is None or warm_up < trace.num_tokens:
        return
    from sharpi.cli.output.terminal import print_note

    print_note(
        f"--resident frequency: the trace has {trace.num_tokens} tokens, and the most used experts"
        f" are chosen for the last time after {warm_up} (--warmup-tokens N)"
    )


def _slot_numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and 0 < int(part) <= 1 << 16 for part in parts):
        raise UsageError(f"--slots '{text}': write numbers from 1 up, as in 8 or 8,16")
    return list(dict.fromkeys(map(int, parts)))


def _policies(text: str) -> list[str]:
    from sharpi.experts.simulation.simulate import SIMULATED

    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in (*SIMULATED, "all"):
            raise UsageError(f"--policy '{name}': choose all or some of {', '.join(SIMULATED)}")
    if not names:
        raise UsageError(f"--policy '{text}' names none; choose all or {', '.join(SIMULATED)}")
    return list(SIMULATED) if "all" in names else list(dict.fromkeys(names))


def _resident(text: str, trace: "Trace") -> tuple[tuple[int, ...], ...]:
    """Returns the ids of each layer's resident experts; empty where the first ones begin."""
    from sharpi.experts.policy_choice import parse_ids

    if text in ("first-n", "frequency"):
        return ()
    return (parse_ids(text, trace.num_experts),) * trace.num_layers


def _report(
    trace: "Trace", names: list[str], numbers: list[int], simulation: "Simulation", as_json: bool
) -> None:
    from sharpi.cli.output.stats_table import print_rows
    from sharpi.experts.simulation.simulate import simulate as replay

    rows = (replay(trace, name, number, simulation) for number in numbers for name in names)
    if as_json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print_rows(trace, list(rows))
    if simulation.warm_pin:
        _compare_with_default(trace, names, numbers, simulation)


def _compare_with_default(
    trace: "Trace", names: list[str], numbers: list[int], simulation: "Simulation"
) -> None:
    """Prints what pinning changes by number of slots, beside the default policy's hit rate."""
    from sharpi.cli.output.stats_table import print_pin_result
    from sharpi.experts.simulation.simulate import OPTIMUM
    from sharpi.experts.simulation.simulate import simulate as replay

    plain = replace(simulation, warm_pin=0)
    pinning = [name for name in names if name not in ("static", OPTIMUM)]
    for number in numbers:
        with_pin = {name: replay(trace, name, number, simulation) for name in pinning}
        without = {name: replay(trace, name, number, plain) for name in pinning}
        default = replay(trace, _DEFAULT_POLICY, number, replace(plain, moving_slots=False))
        print_pin_result(number, with_pin, without, default)


def _report_predictors(trace: "Trace", as_json: bool) -> None:
    from sharpi.cli.output.stats_table import print_predictors
    from sharpi.experts.simulation.simulate import measure_predictors

    rows = measure_predictors(trace)
    if as_json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        print_predictors(trace, rows)


def stats(
    file: Annotated[Path, Option("FILE", "A file that --expert-stats wrote, text or JSON.")],
    png: Annotated[
        Path | None, local_option("--png OUT", "Also draw the heat map of experts into this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how well the expert cache served a run.

    Hits, loads, bytes, stalls and the most used experts, in total and by layer, predicted and
    pinned experts, and a heat map of the experts that each layer used.
    """
    from sharpi.experts.stats.stats_file import read_stats, to_json

    recorded = read_stats(file)
    if as_json:
        print(to_json(recorded))
    else:
        from sharpi.cli.output.stats_table import print_stats

        print_stats(recorded, sys.stdout)
    if png is not None:
        from sharpi.experts.stats.heat_map import save_png

        save_png(png, recorded)
