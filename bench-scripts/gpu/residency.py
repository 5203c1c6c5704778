"""Measures decode and prefill on a GPU by the share of the experts that have slots in VRAM.

An engine is loaded for each share, and measures every miss mode on the same random tokens. Two more
engines are baselines: all experts in VRAM, and all experts on the CPU. Greedy tokens must be equal
in all engines that compute all experts on the GPU. The CPU's results may differ in the last bits,
so its logits only have to be close.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.check_step import Findings
from gpu.engines import Engines, Logits, device_opener, typical_error
from gpu.passes import Passes, Sizes

from sharpi.device.device import Device
from sharpi.engine.engine import Engine
from sharpi.errors import SharpiError
from sharpi.ops.cuda.gpu_limits import GpuLimits
from sharpi.units import parse_size

SHARES = (25, 100, 50, 12, 75)  # percent; the first is the share for which there are aims
_MOST_ERROR = 0.05  # of the logits, relative: activations are rounded to 8 bits on either side
_DRY_SIZES = Sizes(
    prompts=(6, 20), prefix=8, decoded=2, warm_up=1, auto=12, repetitions=1, greedy=3, batch_size=8
)


@dataclass(frozen=True, slots=True)
class EngineCase:
    """The options of one engine to load, and its share of the experts in VRAM."""

    percent: int | None  # of the experts in VRAM; None: all experts on the CPU
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """The share of the experts in VRAM as text for the report."""
        return "all on the CPU" if self.percent is None else f"{self.percent} %"


def main() -> None:
    """Parses the command line and measures each share, until the time limit."""
    options, findings = _parse_options(), Findings()
    sizes = _DRY_SIZES if options.dry_run else Sizes()
    device = device_opener(options.dry_run)(0)
    limits = GpuLimits(device)
    limits.measure_bus()
    findings.figures = {"bus_bytes_per_second": limits.bus_bytes_per_second, "loads": []}
    end = time.monotonic() + options.seconds
    for case in _cases(options):
        if time.monotonic() > end:
            findings.notes.append(f"no time for {case.name}")
            continue
        try:
            _measure(options.model, device, case, sizes, findings)
        except SharpiError as error:
            findings.failures.append(f"{case.name}: {error}")
        figures = {k: v for k, v in findings.figures.items() if k != "logits"}
        Findings(figures, findings.failures, findings.notes).save(options.json)
    findings.figures.pop("logits", None)  # which were kept for comparison alone
    sys.exit(findings.finish(options.json))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--experts", type=int, required=True, help="of a layer of the model")
    parser.add_argument("--ram", type=parse_size, help="RAM to count on")
    parser.add_argument(
        "--seconds", type=float, default=150, help="after which no engine is loaded"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, few tokens")
    return parser.parse_args()


def _cases(options: argparse.Namespace) -> Iterator[EngineCase]:
    common = {"ram": options.ram}
    for percent in SHARES[:2] if options.dry_run else SHARES:
        slots = max(1, round(options.experts * percent / 100))
        yield EngineCase(percent, common if percent == 100 else common | {"moe_slots": slots})
        if percent == SHARES[0]:
            yield EngineCase(None, common | {"cpu_moe": True})


def _measure(
    model: Path, device: Device, case: EngineCase, sizes: Sizes, findings: Findings
) -> None:
    free, start = device.free_bytes, time.perf_counter()
    options = case.options | {"context_size": sizes.context_size, "batch_size": sizes.batch_size}
    with Engines(lambda _: device).on_gpu(model, **options) as engine:
        engine.runner.prepare()
        seconds = time.perf_counter() - start
        vram = free - device.free_bytes
        passes = Passes(engine, sizes)
        figures = {
            "percent": case.percent,
            "slots": _slots(engine),
            "load_seconds": seconds,
            "vram_bytes": vram,
            "prefill": [asdict(row) for row in passes.prefills()],
            "decode": [asdict(row) for row in _decodes(passes, case)],
        }
        if case.percent is None:
            _compare_logits(passes.logits(), case, findings)
        else:
            _compare(passes.greedy(), case, findings)
            if "logits" not in findings.figures:
                findings.figures["logits"] = passes.logits()
        findings.figures["loads"].append(figures)
        findings.notes += [f"{case.name}: {note}" for note in engine.notes]


def _decodes(passes: Passes, case: EngineCase) -> Iterator[Any]:
    """Measures decode in each miss mode, in mode `bus` without a graph, and in mode `auto`.

    If all experts are in VRAM or on the CPU, there is only one measurement.
    """
    if case.percent is None or case.percent == 100:
        yield passes.decode("cpu" if case.percent is None else "none")
        return
    for mode in passes.MODES:
        yield passes.decode(mode)
    yield replace(passes.decode("bus", by_launches=True), mode="bus without a graph")
    yield passes.decode_auto()


def _slots(engine: Engine) -> list[int]:
    assert engine.plan is not None
    return [min(engine.plan.vram_slots), max(engine.plan.vram_slots)]


def _compare_logits(logits: Logits, case: EngineCase, findings: Findings) -> None:
    """Adds a failure if the median token's logits differ too much from the first engine's."""
    far = typical_error(logits, findings.figures["logits"])
    if far > _MOST_ERROR:
        findings.failures.append(f"{case.name}: logits differ by {far:.1e} from the first load's")


def _compare(tokens: list[int], case: EngineCase, findings: Findings) -> None:
    """Adds a failure if the greedy tokens differ from the first engine's."""
    first = findings.figures.setdefault("greedy", tokens)
    if tokens != first:
        findings.failures.append(f"{case.name}: greedy tokens are not those of the first load")


if __name__ == "__main__":
    main()
