"""The report's section about running with only some of the experts in VRAM: tables and aims."""

from collections.abc import Iterator
from typing import Any

AIM_PERCENT = 25  # of the experts in VRAM
DECODE_AIM, BUS_AIM, AUTO_AIM = 2.0, 80.0, 1.05
_AIM_TOKENS = 2048
Figures = dict[str, Any]
Aim = tuple[str, str, bool]


def residency_aims(figures: Figures, llama_cpp: Figures) -> Iterator[Aim]:
    """Yields, for each measured aim, its text, the value reached, and whether the aim is met."""
    loads = {each["percent"]: each for each in figures.get("loads", [])}
    if AIM_PERCENT not in loads:
        return
    load, on_cpu = loads[AIM_PERCENT], loads.get(None)
    decode = {row["mode"]: row for row in load["decode"]}
    yield from _decode_aim(decode, on_cpu)
    yield from _auto_aim(decode)
    yield from _bus_aim(load, figures["bus_bytes_per_second"])
    yield from _prefill_aims(load, on_cpu, llama_cpp)


def _decode_aim(decode: dict[str, Figures], on_cpu: Figures | None) -> Iterator[Aim]:
    """Yields the aim of decode, relative to the faster of two baselines.

    The baselines are miss mode `bus` without a graph, and all experts on the CPU.
    """
    baselines = {"bus without a graph": decode["bus without a graph"]["seconds"]}
    if on_cpu is not None:
        baselines["all experts on the CPU"] = on_cpu["decode"][0]["seconds"]
    best = min(baselines, key=baselines.__getitem__)
    ratio = baselines[best] / decode["auto"]["seconds"]
    aim = f"decode with {AIM_PERCENT} % in VRAM: {DECODE_AIM:g} times the better of two baselines"
    yield aim, f"{ratio:.2f} times {best}", ratio >= DECODE_AIM


def _auto_aim(decode: dict[str, Figures]) -> Iterator[Aim]:
    ways = {mode: decode[mode]["seconds"] for mode in ("bus", "cpu")}
    best = min(ways, key=ways.__getitem__)
    ratio = decode["auto"]["seconds"] / ways[best]
    aim = "--moe-miss auto: within 5 % of the better of the two ways"
    yield aim, f"{ratio:.2f} times the seconds of {best}", ratio <= AUTO_AIM


def _bus_aim(load: Figures, bus: float) -> Iterator[Aim]:
    for row in load["prefill"]:
        if row["tokens"] == _AIM_TOKENS and row["must_cross_bytes"]:
            share = 100 * row["must_cross_bytes"] / bus / row["seconds"]
            aim = f"prefill of {_AIM_TOKENS} tokens with {AIM_PERCENT} %: {BUS_AIM:g} % of the bus"
            yield aim, f"{share:.0f} %", share >= BUS_AIM


def _prefill_aims(load: Figures, on_cpu: Figures | None, llama_cpp: Figures) -> Iterator[Aim]:
    """Yields the aims of prefill, to be at least as fast as the CPU and as llama.cpp."""
    others: dict[str, dict[str, float]] = {"all experts on the CPU": {}, "llama.cpp": {}}
    for row in on_cpu["prefill"] if on_cpu else ():
        others["all experts on the CPU"][f"pp{row['tokens']}"] = row["tokens"] / row["seconds"]
    for row in llama_cpp.get("rows", []):
        if row["percent"] == AIM_PERCENT and row["test"].startswith("pp"):
            others["llama.cpp"][row["test"]] = row["tokens_per_second"]
    for row in load["prefill"]:
        test, speed = f"pp{row['tokens']}", row["tokens"] / row["seconds"]
        for name, speeds in others.items():
            if test in speeds:
                ratio = speed / speeds[test]
                aim = f"prefill of {row['tokens']} tokens with {AIM_PERCENT} %: as fast as {name}"
                yield aim, f"{ratio:.2f} times", ratio >= 1


def residency_lines(figures: Figures, llama_cpp: Figures) -> Iterator[str]:
    """Yields the section's lines: tables of decode, of prefill, and of llama.cpp."""
    loads = sorted(figures.get("loads", []), key=lambda each: each["percent"] or 0)
    if not loads:
        return
    bus = figures["bus_bytes_per_second"]
    resident = next((x["decode"][0]["seconds"] for x in loads if x["percent"] == 100), None)
    yield from ("", "## Some of the experts in VRAM", "")
    yield f"Skewed routes, random tokens; the bus gives {bus / 1e9:.1f} GB/s."
    yield from _decode_table(loads, resident)
    yield from _prefill_table(loads, bus)
    yield from _llama_cpp_table(llama_cpp.get("rows", []))


def _decode_table(loads: list[Figures], resident: float | None) -> Iterator[str]:
    """Yields the lines of the decode table, with a row for each engine and miss mode.

    `resident`: seconds per token with all experts in VRAM; the excess over it is the stalled time.
    """
    yield ""
    yield "| in VRAM | slots | misses | tokens/s | ms | stalled ms | hits | MB over the bus |"
    yield "|---|---|---|---|---|---|---|---|"
    for load in loads:
        for row in load["decode"]:
            way = row["mode"] + (f": {row['fastest']}" if row["fastest"] else "")
            stalled = "" if resident is None else f"{1e3 * (row['seconds'] - resident):.2f}"
            hits = "" if row["hit_rate"] is None else f"{100 * row['hit_rate']:.1f} %"
            bus = "" if row["bus_bytes"] is None else f"{row['bus_bytes'] / 1e6:.1f}"
            yield (
                f"| {_share(load)} | {load['slots'][0]} | {way} | {1 / row['seconds']:.1f} |"
                f" {1e3 * row['seconds']:.2f} | {stalled} | {hits} | {bus} |"
            )


def _prefill_table(loads: list[Figures], bus: float) -> Iterator[str]:
    yield ""
    yield "| in VRAM | prompt | tokens/s | ms | GB that must cross | of the bus |"
    yield "|---|---|---|---|---|---|"
    for load in loads:
        for row in load["prefill"]:
            size = row["must_cross_bytes"]
            share = f"{100 * size / bus / row['seconds']:.0f} %" if size else ""
            yield (
                f"| {_share(load)} | {row['tokens']} | {row['tokens'] / row['seconds']:.0f} |"
                f" {1e3 * row['seconds']:.1f} | {size / 1e9:.2f} | {share} |"
            )


def _llama_cpp_table(rows: list[Figures]) -> Iterator[str]:
    if not rows:
        yield from ("", "llama.cpp was not measured: no llama-bench with CUDA was there.")
        return
    yield from ("", "| llama.cpp, in VRAM | layers off the GPU | test | tokens/s |")
    yield "|---|---|---|---|"
    for row in rows:
        yield (
            f"| {row['percent']} % | {row['layers_off_gpu']} | {row['test']} |"
            f" {row['tokens_per_second']:.1f} |"
        )


def _share(load: Figures) -> str:
    return "none: the CPU has all" if load["percent"] is None else f"{load['percent']} %"
