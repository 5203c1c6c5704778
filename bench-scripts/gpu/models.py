"""Compares the logits of small models on a GPU with those on the CPU, in one of three checks.

`references` compares the reference models with the CPU and with logits of transformers. `types`
compares a synthetic model in each quant type. `graph` checks that a token decoded by launches, by
capturing a graph and by replaying it has bit-identical logits. Errors are relative norms of the
difference, and where rounding differs, those of the median token.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.check_step import Findings, Step, run_step
from gpu.engines import (
    TESTS,
    Engines,
    Ids,
    Logits,
    WatchedDevice,
    add_tests,
    device_opener,
    error,
    step_by_step,
    typical_error,
)
from synthetic_moe import TYPES, Shape, write_model

from sharpi.engine.sequence import Sequence
from sharpi.errors import UnsupportedModelError
from sharpi.gguf.quant_types import QuantType

REFERENCES = TESTS / "references" / "data"
_PRECISIONS = ("f32", "int16", "int8")
# Prefill on a GPU multiplies f16 matrices where the CPU rounds activations to 8 bits, which in the
# random models makes a difference of up to 5 %; a wrong kernel differs by far more.
_BOUNDS = {
    "transformers": 2e-3,
    "f32 prefill": 1e-3,
    "f32 decode": 1e-3,
    "int16 prefill": 1e-2,
    "int16 decode": 1e-2,
    "int8 prefill": 1e-1,
    "int8 decode": 3e-2,
}
SMALL = Shape(
    layers=2,
    hidden=256,
    heads=4,
    kv_heads=2,
    head_dim=64,
    experts=8,
    used=2,
    expert_hidden=256,
    vocabulary=2304,
)
_TOKENS, _FEW_TOKENS = 40, 4
_PROCESSES, _MODEL_SECONDS = 8, 40  # each process has half a GB of the GPU's memory
_GRAPH_CASES = ("llama", "qwen3moe", "gemma3", "gpt-oss")
Errors = dict[str, float]
Check = Callable[[Engines, Findings, argparse.Namespace], None]


def main() -> None:
    """Parses the command line and runs one of the checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=sorted(_CHECKS))
    parser.add_argument("--folder", type=Path, help="for the models of the quant types")
    parser.add_argument("--only", help="names of cases or types, parted by commas")
    parser.add_argument("--seconds", type=float, default=45, help="after which no model begins")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, few tokens")
    options = parser.parse_args()
    findings = Findings()
    if options.dry_run or options.only:
        device = device_opener(options.dry_run)(0)
        _CHECKS[options.check](Engines(lambda _: device), findings, options)
    else:
        _in_processes(options, findings)
    sys.exit(findings.finish(options.json))


def _in_processes(options: argparse.Namespace, findings: Findings) -> None:
    """Checks each model in a process of its own, some at a time; a fault in one ends no other."""
    end, check = time.monotonic() + options.seconds, options.check

    def run(name: str) -> Findings:
        left = min(_MODEL_SECONDS, end - time.monotonic())
        if left <= 0:
            return Findings(notes=[f"no time for {name}"])
        with TemporaryDirectory(dir=options.folder) as folder:
            step = Step(
                name, name, (sys.executable, __file__, check, "--only", name, "--folder", folder),
                _MODEL_SECONDS,
            )  # fmt: skip
            outcome = run_step(step, Path(folder), dict(os.environ), left)
        failures = outcome.findings.failures
        return replace(outcome.findings, failures=[_with_name(name, each) for each in failures])

    with ThreadPoolExecutor(_PROCESSES) as threads:
        for done in as_completed([threads.submit(run, each) for each in _names(check)]):
            found = done.result()
            findings.figures |= found.figures
            findings.failures += found.failures
            findings.notes += found.notes
            findings.save(options.json)


def _with_name(name: str, failure: str) -> str:
    return failure if failure.startswith(name) else f"{name}: {failure}"


def _names(check: str) -> list[str]:
    if check == "graph":
        return list(_GRAPH_CASES)
    if check == "types":
        return sorted(t.name for t in TYPES)
    return sorted(path.stem for path in REFERENCES.glob("*.npz"))


def check_references(engines: Engines, findings: Findings, options: argparse.Namespace) -> None:
    """Checks prefill and decode of each reference model, with float32 and with Q8_0 weights."""
    with TemporaryDirectory(dir=options.folder) as folder:
        for name in _chosen("references", options):
            compare = partial(_compare_reference, engines, name, Path(folder), options.dry_run)
            _check(findings, name, compare)


def _compare_reference(engines: Engines, name: str, folder: Path, is_dry: bool) -> Errors:
    """Returns a reference model's errors, with float32 weights and as Q8_0 with int8 activations.

    The float32 model is also compared with the logits of transformers.
    """
    add_tests("references")
    from gguf import GGMLQuantizationType
    from requantise import requantise

    path = REFERENCES / f"{name}.gguf"
    with np.load(REFERENCES / f"{name}.npz") as arrays:
        count = _FEW_TOKENS if is_dry else len(arrays["tokens"])
        ids, logits = arrays["tokens"][:count].astype(np.int32), arrays["logits"][:count]
    errors = _compare(engines, path, ids, "f32")
    with engines.on_gpu(path, precision="f32") as gpu:
        errors["transformers"] = typical_error(gpu.logits(ids), logits)
    rounded = requantise(path, folder / "q8_0.gguf", GGMLQuantizationType.Q8_0)
    return errors | _compare(engines, rounded, ids, "int8")


def check_types(engines: Engines, findings: Findings, options: argparse.Namespace) -> None:
    """Checks a synthetic model of each quant type, in each precision."""
    ids = np.random.default_rng(5).integers(0, SMALL.vocabulary, _TOKENS).astype(np.int32)
    count = _FEW_TOKENS if options.dry_run else len(ids)
    with TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "model.gguf"
        for name in _chosen("types", options):
            write_model(path, SMALL, QuantType[name], pool_bytes=1 << 20)
            _check(findings, name, partial(_compare, engines, path, ids[:count], *_PRECISIONS))


def _compare(engines: Engines, path: Path, ids: Ids, *precisions: str) -> Errors:
    """Returns the errors of the GPU's logits relative to the CPU's, by precision and phase."""
    add_tests("references")
    from agreement import float_attention

    errors, kernels = {}, float_attention()
    for precision in precisions:
        with engines.on_cpu(path, precision=precision, instruction_set=kernels) as cpu:
            expected = cpu.logits(ids)
        with engines.on_gpu(path, precision=precision) as gpu:
            errors[f"{precision} prefill"] = typical_error(gpu.logits(ids), expected)
            compare = error if precision == "f32" else typical_error
            errors[f"{precision} decode"] = compare(step_by_step(gpu, ids), expected)
    return errors


def _check(findings: Findings, name: str, compare: Callable[[], Errors]) -> None:
    """Runs `compare` and records the errors of a case; fails if they are too large.

    If the model has no GPU kernels, records this as a note; any other exception is a failure.
    """
    try:
        errors = compare()
    except UnsupportedModelError as reason:
        findings.notes.append(f"{name} runs on the CPU: {reason}")
    except Exception as problem:  # the next case may still work
        findings.failures.append(f"{name}: {type(problem).__name__}: {problem}")
    else:
        findings.figures[name] = errors
        _judge(findings, name, errors)


def _judge(findings: Findings, name: str, errors: Errors) -> None:
    for kind, value in errors.items():
        bound = _BOUNDS[kind]
        if not value < bound:
            findings.failures.append(f"{name}: {kind} is off by {value:.1e}, more than {bound:.0e}")


def check_graph(engines: Engines, findings: Findings, options: argparse.Namespace) -> None:
    """Checks that launching, capturing and replaying the same step have equal logits."""
    for name in _chosen("graph", options):
        device = WatchedDevice(engines.open_device(0))
        launched, *replayed = _decoded_thrice(REFERENCES / f"{name}.gguf", device)
        findings.figures[name] = {"captured": device.captured, "replayed": device.replayed}
        if device.captured < 1 or device.replayed < 2:
            findings.failures.append(f"{name}: no graph was captured, or none replayed")
        if not all(np.array_equal(launched, each) for each in replayed):
            findings.failures.append(f"{name}: the graph's logits are not those of its launches")


def _decoded_thrice(path: Path, device: WatchedDevice) -> list[Logits]:
    """Decodes the same token at the same position three times; returns the logits of each."""
    with Engines(lambda _: device).on_gpu(path) as engine:
        sequence = Sequence(engine.runner)
        sequence.extend([3, 5, 7])
        return list(_repeated(sequence, 11, 3))


def _repeated(sequence: Sequence, token: int, times: int) -> Iterator[Logits]:
    length = len(sequence.tokens)
    for _ in range(times):
        yield sequence.extend([token]).copy()
        sequence.truncate(length)


def _chosen(check: str, options: argparse.Namespace) -> list[str]:
    names = _names(check)
    wanted = options.only.split(",") if options.only else names
    return [name for name in names if name in wanted]


_CHECKS: dict[str, Check] = {
    "references": check_references,
    "types": check_types,
    "graph": check_graph,
}

if __name__ == "__main__":
    main()
