"""`sharpi simulate`: replays a recorded trace through every slot policy and the optimal one."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict

from sharpi.cli.options.json_output import JsonOption
from sharpi.errors import UsageError

if TYPE_CHECKING:
    from sharpi.experts.simulation.simulate import Simulation
    from sharpi.experts.trace.trace import Trace

_WARM_UP_TOKENS = 4096  # of the trace, which choose the fixed set of "frequency"


def simulate(
    trace_file: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace, an .npz file.")],
    slots: Annotated[
        str, typer.Option("--slots", metavar="N,...", help="Slots for experts in each layer.")
    ] = "8",
    policy: Annotated[
        str,
        typer.Option(
            "--policy", metavar="NAME,...", help="Policies to replay; 'optimum' is one of them."
        ),
    ] = "all",
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", min=1, help="Replay only the first tokens.", show_default="all"),
    ] = None,
    admission: Annotated[
        bool,
        typer.Option(
            "--admission/--no-admission",
            help="slru: a miss takes a slot only if it was used more often lately than the victim.",
        ),
    ] = False,
    load_budget: Annotated[
        float | None,
        typer.Option(
            "--load-budget",
            min=0,
            help="learned: expert loads per token.",
            show_default="a tenth of a token's lookups",
        ),
    ] = None,
    moving_slots: Annotated[
        bool,
        typer.Option(
            "--moving-slots/--fixed-slots",
            help="learned: slots move to the layers that need them.",
        ),
    ] = False,
    resident: Annotated[
        str,
        typer.Option(
            "--resident",
            metavar="SET",
            help="static: first-n, frequency (of the first 4096 tokens) or ids as in 1,2,5 or 0-7.",
        ),
    ] = "first-n",
    warm_pin: Annotated[
        int, typer.Option("--warm-pin", min=0, help="Pin the N most used experts of each layer.")
    ] = 0,
    warm_pin_after: Annotated[
        int,
        typer.Option("--warm-pin-after", min=0, help="Accesses to experts before they are pinned."),
    ] = 50_000,
    predictors: Annotated[
        bool, typer.Option("--predictors", help="Measure the predictors instead of the policies.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Replay a trace of routes through the slot policies.

    Prints for each policy, and for the best possible one without prefetch (optimum), how many of
    the experts were hits, and how many were loaded. Bytes need a trace with expert sizes, such as
    those of --moe-trace.
    """
    from sharpi.experts.simulation.simulate import Simulation
    from sharpi.experts.trace.trace import read_trace

    numbers, names = _slot_numbers(slots), _policies(policy)
    trace = read_trace(trace_file)
    if max(numbers) > trace.num_experts:
        raise UsageError(f"--slots {max(numbers)}: the trace has {trace.num_experts} experts")
    sets = _resident(resident, trace)
    if tokens is not None:
        trace = trace.first(tokens)
    if predictors:
        return _report_predictors(trace, as_json=as_json)
    simulation = Simulation(admission, load_budget, sets, moving_slots, warm_pin, warm_pin_after)
    _report(trace, names, numbers, simulation, as_json=as_json)


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
    import numpy as np

    from sharpi.experts.static_set import most_used, parse_ids

    if text == "first-n":
        return ()
    if text != "frequency":
        return (parse_ids(text, trace.num_experts),) * trace.num_layers
    seen = trace.routes[:_WARM_UP_TOKENS]
    layers = [np.bincount(ids.ravel(), minlength=trace.num_experts) for ids in seen.swapaxes(0, 1)]
    return most_used(np.stack(layers))


def _report(
    trace: "Trace",
    names: list[str],
    numbers: list[int],
    simulation: "Simulation",
    *,
    as_json: bool,
) -> None:
    from sharpi.cli.output.simulate_table import print_rows
    from sharpi.experts.simulation.simulate import simulate as replay

    rows = (replay(trace, name, number, simulation) for number in numbers for name in names)
    if as_json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        print_rows(trace, list(rows))


def _report_predictors(trace: "Trace", *, as_json: bool) -> None:
    from sharpi.cli.output.simulate_table import print_predictors
    from sharpi.experts.simulation.predictor_replay import measure_predictors

    rows = measure_predictors(trace)
    if as_json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        print_predictors(trace, rows)
