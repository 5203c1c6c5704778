"""Measures prefill, decode and greedy tokens of one model on a GPU, like `sharpi bench`.

The greedy tokens follow a fixed prompt of random ids. They are computed twice, each time from an
empty KV cache, and must be equal, also to those of other runs with fewer experts in VRAM.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.check_step import Findings
from gpu.engines import Engines, device_opener

from sharpi.device.device import Device
from sharpi.device.launch import Launch
from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.backends.gpu.tier import GpuTier
from sharpi.engine.backends.parts import gpu_tier_of
from sharpi.engine.engine import Engine
from sharpi.engine.measure.benchmark import BenchmarkTest, run_benchmark
from sharpi.engine.sequence import Sequence
from sharpi.errors import SharpiError
from sharpi.ops.cuda.gpu_limits import replay_seconds
from sharpi.trial import Trial
from sharpi.units import parse_size

_GREEDY_POSITION = 64


def main() -> None:
    """Parses the command line, measures, and checks the greedy tokens."""
    options = _parse_options()
    findings = Findings()
    try:
        _run(options, findings)
    except SharpiError as error:
        findings.failures.append(str(error))
    sys.exit(findings.finish(options.json))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--moe-slots", type=int, help="experts of a layer in VRAM; default: all")
    parser.add_argument("--ram", type=parse_size, help="RAM to count on")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--depth", type=int, default=3840, help="for a second decode")
    parser.add_argument("--greedy", type=int, default=64)
    parser.add_argument("--greedy-only", action="store_true")
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60, help="after which no test begins")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, few tokens")
    options = parser.parse_args()
    if options.dry_run:
        options.prompt, options.tokens, options.depth, options.greedy = 4, 2, 3, 4
        options.repetitions = 1
    return options


def _run(options: argparse.Namespace, findings: Findings) -> None:
    device = device_opener(options.dry_run)(0)
    free, start = device.free_bytes, time.perf_counter()
    settings = {
        "moe_slots": options.moe_slots,
        "ram": options.ram,
        "context_size": options.depth + options.prompt + options.tokens,
    }
    with Engines(lambda _: device).on_gpu(options.model, **settings) as engine:
        engine.runner.prepare()
        plan = engine.plan
        assert plan is not None
        findings.figures |= {
            "load_seconds": time.perf_counter() - start,
            "vram_bytes": free - device.free_bytes,
            "vram_slots": [min(plan.vram_slots), max(plan.vram_slots)],
            "layers_on_cpu": plan.first_gpu_layer,
            "tokens": _reproducible_tokens(engine, options.greedy, findings),
        }
        findings.notes += engine.notes
        findings.save(options.json)
        if not options.greedy_only:
            tries = 1 if options.dry_run else 7
            findings.figures["kernels"] = _kernels_of_token(engine, device, tries)
            findings.save(options.json)
            tests = [
                BenchmarkTest("pp", options.prompt),
                BenchmarkTest("tg", options.tokens),
                BenchmarkTest("tg", options.tokens, options.depth),
            ]
            rows = findings.figures["rows"] = []
            for test in tests:
                if time.perf_counter() - start > options.seconds:
                    findings.notes.append(f"no time for {test.name}")
                    continue
                rows += [row.record() for row in run_benchmark(engine, [test], options.repetitions)]
                findings.save(options.json)


def _kernels_of_token(engine: Engine, device: Device, tries: int) -> dict[str, dict[str, float]]:
    """Returns the launches of each kernel that decodes a token, and microseconds of one of them.

    They are the launches that a token's graph has, with its weights: folded, split and mixed ones.
    """
    launches: dict[str, list[Launch]] = {}
    for part in engine.runner.parts:
        if isinstance(part, GpuPart):
            for call in part.calls_of_token(_GREEDY_POSITION):
                if isinstance(call, Launch):
                    launches.setdefault(call.kernel.entry, []).append(call)
    return {
        entry: {
            "launches": len(own),
            "microseconds": 1e6 * min(replay_seconds(device, own, tries)) / len(own),
        }
        for entry, own in sorted(launches.items())
    }


def _reproducible_tokens(engine: Engine, count: int, findings: Findings) -> list[int]:
    """Returns greedy tokens in the miss modes whose results equal those of all experts in VRAM."""
    tier = gpu_tier_of(engine.runner.parts)
    if not isinstance(tier, GpuTier):
        return _greedy_twice(engine, count, findings)
    modes = tier.miss.options
    tier.miss = Trial([mode for mode in modes if mode != "cpu"] or modes)
    tokens = _greedy_twice(engine, count, findings)
    tier.miss = Trial(modes)
    return tokens


def _greedy_twice(engine: Engine, count: int, findings: Findings) -> list[int]:
    first, second = (_greedy(engine, count) for _ in range(2))
    if first != second:
        at = next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
        findings.failures.append(f"greedy tokens differ from the {at + 1}th on, in one process")
    return first


def _greedy(engine: Engine, count: int) -> list[int]:
    random = np.random.default_rng(7)
    prompt = random.integers(0, engine.runner.vocab_size, max(2, count // 2)).tolist()
    sequence, tokens = Sequence(engine.runner), []
    logits = sequence.extend(prompt)
    for _ in range(count):
        if not np.isfinite(logits).all():
            raise SharpiError("the logits are not finite numbers")
        tokens.append(int(np.argmax(logits)))
        logits = sequence.extend(tokens[-1:])
    sequence.truncate(0)
    return tokens


if __name__ == "__main__":
    main()
