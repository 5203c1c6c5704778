"""Writes the report of a check: a JSON file with all figures, and a Markdown summary."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu.check_residency import residency_aims, residency_lines
from gpu.check_step import Outcome

KERNEL_AIM, DECODE_AIM = 80, 60  # percent of the measured read rate
_AIM_TYPE = "Q4_K"
_MOST_NOTES = 8
Figures = dict[str, Any]


def report_path(
    outcomes: Sequence[Outcome], folder: Path, is_dry: bool, part: int | None = None
) -> Path:
    """Returns the path of the Markdown file, whose name has the GPU and the part."""
    name = _gpu(outcomes)
    slug = "dry-run" if is_dry else re.sub(r"[^a-z0-9]+", "-", (name or "no-GPU").lower())
    tail = "" if part is None else f"-part-{part}"
    return folder / f"gpu-check-{slug.strip('-')}{tail}.md"


def _gpu(outcomes: Sequence[Outcome]) -> str | None:
    facts = next((o.findings.figures for o in outcomes if o.name == "packages"), {})
    name: str | None = facts.get("gpu")
    return name


def write_report(
    outcomes: Sequence[Outcome],
    folder: Path,
    seconds: float,
    is_dry: bool,
    part: int | None = None,
) -> Path:
    """Writes the JSON and the Markdown file, and returns the path of the Markdown file."""
    figures = {outcome.name: outcome.findings.figures for outcome in outcomes}
    folder.mkdir(parents=True, exist_ok=True)
    path = report_path(outcomes, folder, is_dry, part)
    data = {
        "gpu": _gpu(outcomes),
        "is_dry_run": is_dry,
        "part": part,
        "seconds": seconds,
        "passed": all(outcome.status != "failed" for outcome in outcomes),
        "aims": [{"aim": aim, "value": value, "met": met} for aim, value, met in aims(figures)],
        "steps": [asdict(outcome) for outcome in outcomes],
    }
    path.with_suffix(".json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    path.write_text("\n".join(_lines(outcomes, figures, data)) + "\n", encoding="utf-8")
    return path


def aims(figures: dict[str, Figures]) -> Iterator[tuple[str, str, bool]]:
    """Yields, for each measured aim, its text, the value reached, and whether the aim is met."""
    for row in figures.get("kernels", {}).get("rows", []):
        is_meant = row["kernel"].startswith("experts") and row["quant_type"] == _AIM_TYPE
        if is_meant and row["tokens"] == 1:
            aim = f"{row['kernel']} {_AIM_TYPE}, one token: {KERNEL_AIM} % of the read rate"
            share, most = row["percent"], row["percent_without_start"]
            value = f"{share:.0f} %; {most:.0f} % without what starting a kernel takes"
            yield aim, value, share >= KERNEL_AIM
    for row in figures.get("resident", {}).get("rows", [])[1:2]:
        if row["percent_of_limit"] is not None:
            aim = f"decode with all experts in VRAM: {DECODE_AIM} % of the limit"
            share = row["percent_of_limit"]
            yield aim, f"{share:.1f} %", share >= DECODE_AIM
    yield from residency_aims(figures.get("residency", {}), figures.get("llama_cpp", {}))


def _lines(
    outcomes: Sequence[Outcome], figures: dict[str, Figures], data: Figures
) -> Iterator[str]:
    facts = figures.get("packages", {})
    yield f"# GPU check: {data['gpu'] or 'no GPU'}"
    yield ""
    if data["is_dry_run"]:
        yield "A dry run on the CPU with tiny sizes: its figures say nothing about speed."
        yield ""
    yield from _machine(facts)
    passed = sum(outcome.status == "passed" for outcome in outcomes)
    result = "everything passed" if data["passed"] else "some of it failed"
    yield f"{passed} of {len(outcomes)} steps passed in {data['seconds']:.0f} s: {result}."
    yield from _steps(outcomes)
    yield from _aims(data["aims"])
    yield from _speed(figures)
    yield from residency_lines(figures.get("residency", {}), figures.get("llama_cpp", {}))
    yield from _kernels(figures.get("kernels", {}))
    yield from _errors(figures)
    yield from _notes(outcomes)


def _machine(facts: Figures) -> Iterator[str]:
    if facts.get("gpu"):
        yield (
            f"Driver {facts['driver']} (CUDA {_cuda(facts['driver_cuda'])}), CUDA"
            f" {_cuda(facts['cuda'])}, compute capability {facts['compute_capability']},"
            f" {facts['multiprocessors']} multiprocessors, {facts['total_vram'] / 1e9:.0f} GB,"
            f" L2 {facts['l2_bytes'] / 1e6:.0f} MB."
        )
    packages = ", ".join(f"{name} {version}" for name, version in facts.get("packages", {}).items())
    yield f"sharpi {facts.get('commit')}, Python {facts.get('python')}, {packages}."
    yield ""


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _steps(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield from ("", "| step | result | seconds | |", "|---|---|---|---|")
    for outcome in outcomes:
        what = outcome.findings.failures or outcome.findings.notes
        first = what[0] if what and outcome.status != "passed" else ""
        more = f" (and {len(what) - 1} more)" if first and len(what) > 1 else ""
        text = first.replace("|", "\\|") + more
        yield f"| {outcome.title} | {outcome.status} | {outcome.seconds:.0f} | {text} |"


def _aims(reached: list[Figures]) -> Iterator[str]:
    if not reached:
        return
    yield from ("", "| aim | reached | |", "|---|---|---|")
    for each in reached:
        yield f"| {each['aim']} | {each['value']} | {'met' if each['met'] else 'missed'} |"


def _speed(figures: dict[str, Figures]) -> Iterator[str]:
    titles = {"resident": "all experts in VRAM", "quarter": "a quarter of them"}
    rows = [(t, row) for n, t in titles.items() for row in figures.get(n, {}).get("rows", [])]
    if not rows:
        return
    yield from ("", "## The synthetic model", "")
    yield "| experts | test | tokens/s | GB/s | limit GB/s | of limit | kernels a token |"
    yield "|---|---|---|---|---|---|---|"
    for title, row in rows:
        yield (
            f"| {title} | {row['test']} | {row['tokens_per_second']:.1f} ±"
            f" {row['deviation']:.1f} | {row['gigabytes_per_second']:.1f} |"
            f" {_number(row['read_limit_gigabytes_per_second'])} |"
            f" {_percent(row['percent_of_limit'])} | {row.get('launches_per_token') or ''} |"
        )
    yield ""
    for name, title in titles.items():
        if "load_seconds" in figures.get(name, {}):
            f = figures[name]
            yield (
                f"- {title}: loaded in {f['load_seconds']:.1f} s, {f['vram_bytes'] / 1e9:.1f} GB of"
                f" VRAM, {f['vram_slots'][0]} slots for experts in a layer."
            )


def _kernels(report: Figures) -> Iterator[str]:
    if not report:
        return
    yield from ("", "## The kernels", "")
    yield (
        f"The GPU reads {report['read_gigabytes_per_second']:.0f} GB/s of its own memory and"
        f" {report['bus_gigabytes_per_second']:.1f} GB/s over the bus; a kernel that does nothing"
        f" takes {report['start_microseconds']:.2f} us within a graph."
    )
    yield from ("", "| kernel | type | shape | T | us | GB/s | of GPU | less start |")
    yield "|---|---|---|---|---|---|---|---|"
    for row in report["rows"]:
        yield (
            f"| {row['kernel']} | {row['quant_type']} | {row['shape']} | {row['tokens']} |"
            f" {row['microseconds']:.2f} | {_number(row['gigabytes_per_second'])} |"
            f" {_percent(row['percent'])} | {_percent(row['percent_without_start'])} |"
        )


def _errors(figures: dict[str, Figures]) -> Iterator[str]:
    """Yields the lines of a table: the largest error of each comparison, and its case."""
    worst: dict[str, tuple[float, str]] = {}
    for name in ("references", "types"):
        for case, errors in figures.get(name, {}).items():
            for kind, value in errors.items():
                worst[kind] = max(worst.get(kind, (0.0, "")), (value, case))
    if not worst:
        return
    yield from ("", "## Logits", "", "| against | largest error | of |", "|---|---|---|")
    for kind, (value, case) in worst.items():
        against = "transformers" if kind == "transformers" else f"the CPU, {kind}"
        yield f"| {against} | {value:.1e} | {case} |"


def _notes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    told = [o for o in outcomes if o.findings.notes or len(o.findings.failures) > 1]
    if told:
        yield from ("", "## Notes", "")
    for outcome in told:
        lines = outcome.findings.failures + outcome.findings.notes
        for line in lines[:_MOST_NOTES]:
            yield f"- {outcome.title}: {line}"
        if len(lines) > _MOST_NOTES:
            yield f"- {outcome.title}: and {len(lines) - _MOST_NOTES} more, in the JSON file"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} %"
