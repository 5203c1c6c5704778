"""Whole models on a card against the CPU: every reference, every quant type, graphs and launches.

`references`: the small models that transformers was run on. `types`: one synthetic model in each
quant type. `graph`: a token decoded by launches, by the graph captured from them, and by its replay
has the same bits each time. Errors are norms of differences over norms.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from card_device import TESTS, device_opener
from card_engines import Engines, Ids, Logits, error, step_by_step
from gpu_check_step import Findings
from synthetic_moe import Shape, write_model
from watched_device import WatchedDevice

from sharpi.engine.sequence import Sequence
from sharpi.errors import UnsupportedModelError
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.unsupported import CARD_TYPES

REFERENCES = TESTS / "references"
# float32 against float32; rounded activations and f16 matrices against rounded activations.
FLOAT_ERROR, TRANSFORMERS_ERROR, ROUNDED_ERROR = 1e-3, 2e-3, 3e-2
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
_GRAPH_CASES = ("llama", "qwen3moe", "gemma3", "gpt-oss")
Check = Callable[[Engines, Findings, argparse.Namespace], None]


def main() -> None:
    """Parses the command line and runs one of the checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=sorted(_CHECKS))
    parser.add_argument("--folder", type=Path, help="for the models of the quant types")
    parser.add_argument("--only", help="names of cases or types, parted by commas")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, few tokens")
    options = parser.parse_args()
    findings, opener = Findings(), device_opener(options.dry_run)
    device = opener()
    _CHECKS[options.check](Engines(lambda: device), findings, options)
    sys.exit(findings.finish(options.json))


def check_references(engines: Engines, findings: Findings, options: argparse.Namespace) -> None:
    """Each case in float32 and as it would run by itself, prefill and decode."""
    for name in _chosen(sorted(path.stem for path in REFERENCES.glob("*.npz")), options):
        path = REFERENCES / f"{name}.gguf"
        with np.load(REFERENCES / f"{name}.npz") as arrays:
            ids, logits = arrays["tokens"].astype(np.int32), arrays["logits"]
        count = _FEW_TOKENS if options.dry_run else len(ids)
        compare = partial(_compare, engines, path, ids[:count])
        errors = _recorded(findings, name, compare)
        if errors is not None:
            with engines.on_card(path, precision="f32") as card:
                errors["transformers"] = error(card.logits(ids[:count]), logits[:count])
            _judge(findings, name, errors)


def check_types(engines: Engines, findings: Findings, options: argparse.Namespace) -> None:
    """The same for a model of each type; its file is removed at once."""
    ids = np.random.default_rng(5).integers(0, SMALL.vocabulary, _TOKENS).astype(np.int32)
    count = _FEW_TOKENS if options.dry_run else len(ids)
    with TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "model.gguf"
        for name in _chosen(sorted(t.name for t in CARD_TYPES), options):
            write_model(path, SMALL, QuantType[name], pool_bytes=1 << 20)
            errors = _recorded(findings, name, partial(_compare, engines, path, ids[:count]))
            if errors is not None:
                _judge(findings, name, errors)


def _compare(engines: Engines, path: Path, ids: Ids) -> dict[str, float]:
    """Errors of the card against the CPU, by what was compared."""
    errors = {}
    for kind, options in (("float", {"precision": "f32"}), ("rounded", {"precision": "int16"})):
        with engines.on_cpu(path, **options) as cpu:
            expected = cpu.logits(ids)
        with engines.on_card(path, **options) as card:
            errors[f"{kind} prefill"] = error(card.logits(ids), expected)
            errors[f"{kind} decode"] = error(step_by_step(card, ids), expected)
    return errors


def _recorded(
    findings: Findings, name: str, compare: Callable[[], dict[str, float]]
) -> dict[str, float] | None:
    """The errors, as figures too; None where there are none, and why."""
    try:
        errors = compare()
    except UnsupportedModelError as reason:
        findings.notes.append(f"{name} runs on the CPU: {reason}")
    except Exception as problem:  # the next case may do better
        findings.failures.append(f"{name}: {type(problem).__name__}: {problem}")
    else:
        findings.figures[name] = errors
        return errors
    return None


def _judge(findings: Findings, name: str, errors: dict[str, float]) -> None:
    for kind, value in errors.items():
        bound = TRANSFORMERS_ERROR if kind == "transformers" else FLOAT_ERROR
        bound = ROUNDED_ERROR if kind.startswith("rounded") else bound
        if not value < bound:
            findings.failures.append(f"{name}: {kind} is off by {value:.1e}, more than {bound:.0e}")


def check_graph(engines: Engines, findings: Findings, options: argparse.Namespace) -> None:
    """The third of three equal steps replays what the second captured from what the first did."""
    for name in _chosen(_GRAPH_CASES, options):
        device = WatchedDevice(engines.open_device())
        launched, *replayed = _decoded_thrice(REFERENCES / f"{name}.gguf", device)
        findings.figures[name] = {"captured": device.captured, "replayed": device.replayed}
        if device.captured < 1 or device.replayed < 2:
            findings.failures.append(f"{name}: no graph was captured, or none replayed")
        if not all(np.array_equal(launched, each) for each in replayed):
            findings.failures.append(f"{name}: the graph's logits are not those of its launches")


def _decoded_thrice(path: Path, device: WatchedDevice) -> list[Logits]:
    """Logits of the same token at the same place."""
    with Engines(lambda: device).on_card(path) as engine:
        sequence = Sequence(engine.runner)
        sequence.extend([3, 5, 7])
        return list(_repeated(sequence, 11, 3))


def _repeated(sequence: Sequence, token: int, times: int) -> Iterator[Logits]:
    length = len(sequence.tokens)
    for _ in range(times):
        yield sequence.extend([token]).copy()
        sequence.truncate(length)


def _chosen(names: list[str] | tuple[str, ...], options: argparse.Namespace) -> list[str]:
    wanted = options.only.split(",") if options.only else names
    return [name for name in names if name in wanted]


_CHECKS: dict[str, Check] = {
    "references": check_references,
    "types": check_types,
    "graph": check_graph,
}

if __name__ == "__main__":
    main()
