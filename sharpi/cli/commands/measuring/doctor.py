"""`sharpi doctor`: the machine's hardware, its measured speed, and what is missing."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sharpi.cli.options.json_output import JsonOption
from sharpi.cli.options.loading.cluster import (
    ClusterOptions,
    InsecureLinkOption,
    LinkOption,
)
from sharpi.cli.options.option import argument, local_option
from sharpi.cli.output.terminal import fitted
from sharpi.config import FEATURES
from sharpi.errors import UsageError
from sharpi.units import format_bytes

if TYPE_CHECKING:
    from sharpi.cli.output.doctor_advice import Advice
    from sharpi.hardware.report import HardwareReport

Row = tuple[str, str]  # a heading and its text


def doctor(
    path: Annotated[
        Path,
        argument(
            "PATH",
            "A model file on the disk to measure, or a folder to write a test file in.",
            show_default="the current folder",
        ),
    ] = Path(),
    hosts: Annotated[
        str | None,
        local_option(
            "--hosts",
            "Measure the links between machines instead: the address of this one, then a name for"
            " each other, on which `sharpi join ADDRESS MODEL` runs.",
            "A,B",
        ),
    ] = None,
    link: LinkOption = None,
    insecure_link: InsecureLinkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the machine's hardware and what is missing.

    Cores, instruction sets, RAM and its limits, GPUs with their driver, optional packages, and what
    --disable can switch off. Reading and copying RAM and reading the disk are measured, which takes
    a few seconds. With `--hosts` each link between machines is measured both ways: how long 8 KB
    take, and the bandwidth.
    """
    if hosts is not None:
        _show_links(ClusterOptions(hosts, link, insecure_link), as_json=as_json)
        return
    if link or insecure_link:
        raise UsageError("--link and --insecure-link are of use with --hosts only")
    from sharpi.cli.output.doctor_advice import advise
    from sharpi.hardware.report import examine

    report = examine(path)
    advice = advise(report)
    if as_json:
        print(json.dumps(report.to_dict() | _also(advice)))
        return
    for heading, text in _rows(report):
        print(fitted(f"{heading:15}{text}", sys.stdout, indent=15))
    for each in advice:
        print(fitted(f"{'missing':15}{each}", sys.stdout, indent=15))


def _show_links(options: ClusterOptions, *, as_json: bool) -> None:
    from sharpi.cli.output.link_table import link_record, print_links
    from sharpi.cli.ranks import measured_links

    found = measured_links(options.first_of())
    if as_json:
        print(json.dumps(link_record(*found)))
    else:
        print_links(*found)


def _also(advice: "Sequence[Advice]") -> dict[str, Any]:
    return {"missing": [each.to_dict() for each in advice], "features": FEATURES}


def _rows(report: "HardwareReport") -> Iterator[Row]:
    yield "cores", _cores(report)
    yield from _kernel_rows(report)
    yield from _memory_rows(report)
    yield from _disk_rows(report)
    yield from _gpu_rows(report)
    packages = (f"{name} {found or 'not found'}" for name, found in report.packages.items())
    yield "packages", ", ".join(packages)
    for number, (name, effect) in enumerate(FEATURES.items()):
        yield "" if number else "switches", f"--disable {name}: {effect}"


def _cores(report: "HardwareReport") -> str:
    text = f"{report.physical_cores} physical, {report.logical_cores} logical"
    if 0 < report.performance_cores < report.physical_cores:
        text += f"; {report.performance_cores} performance cores, which are used by default"
    if report.numa_nodes > 1:
        text += f"; {report.numa_nodes} NUMA nodes"
    return text


def _kernel_rows(report: "HardwareReport") -> Iterator[Row]:
    if report.kernels_fault:
        yield "kernels", report.kernels_fault
        return
    used, *others = report.instruction_sets
    others_too = f"; {', '.join(others)} run here too" if others else ""
    yield "kernels", f"{used} in use{others_too}"
    for name, features in report.better_instruction_sets.items():
        yield "", f"{name} needs what this processor lacks: {', '.join(features)}"


def _memory_rows(report: "HardwareReport") -> Iterator[Row]:
    memory = report.memory
    limit = f", limited to {format_bytes(memory.limit)}" if memory.limit is not None else ""
    yield "RAM", f"{format_bytes(memory.free)} free of {format_bytes(memory.total)}{limit}"
    yield "", f"read {_rate(report.ram_read_bytes_per_second)}"
    yield "", f"copy {_rate(report.ram_copy_bytes_per_second)}"
    yield "pages", f"{format_bytes(report.page_size)}, {_huge_pages(report)}"


def _huge_pages(report: "HardwareReport") -> str:
    if report.transparent_huge_pages is None:
        return "no huge pages"
    size = format_bytes(report.memory.huge_page_size)
    return f"huge pages of {size}: {report.transparent_huge_pages}"


def _disk_rows(report: "HardwareReport") -> Iterator[Row]:
    disk = report.disk
    yield "disk", f"{disk.path}: {format_bytes(disk.free_bytes)} free"
    way = "past the page cache" if disk.is_direct else "through the page cache only"
    yield "", disk.fault or f"read {_rate(disk.bytes_per_second)} {way}"


def _gpu_rows(report: "HardwareReport") -> Iterator[Row]:
    driver = report.gpu_driver
    if driver is None:
        yield "GPU", "none found"
        return
    yield "GPU driver", f"{driver.version}, up to CUDA {driver.cuda_version}"
    for gpu in driver.gpus:
        room = f"{format_bytes(gpu.free_vram)} free of {format_bytes(gpu.total_vram)}"
        yield "GPU", f"{gpu.name}, compute capability {gpu.compute_capability}, {room}"


def _rate(bytes_per_second: float | None) -> str:
    return "not measured" if bytes_per_second is None else f"{bytes_per_second / 1e9:.1f} GB/s"
