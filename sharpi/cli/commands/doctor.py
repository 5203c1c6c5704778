"""`sharpi doctor`: the machine's hardware, its measured speed, and what is missing."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from sharpi import __version__
from sharpi.cli.inputs import JsonOption
from sharpi.cli.output.terminal import fitted
from sharpi.errors import DeviceError, SharpiError, UsageError
from sharpi.resources import install_command, is_checkout
from sharpi.settings import FEATURES, ClusterConfig
from sharpi.settings.cluster import hosts_of
from sharpi.settings.option import Only, Option, local_option
from sharpi.units import format_bytes

if TYPE_CHECKING:
    from sharpi.hardware.report import HardwareReport


_ALONE = ClusterConfig()
Row = tuple[str, str]  # a heading and its text


def doctor(
    path: Annotated[
        Path,
        Option(
            "PATH",
            "A model file on the disk to measure, or a folder to write a test file in.",
            default="the current folder",
        ),
    ] = Path(),
    cluster: Annotated[ClusterConfig, Only(("link", "insecure_link"))] = _ALONE,
    hosts: Annotated[
        dict[str, Any] | None,
        local_option(
            "--hosts A,B",
            "Measure the links between machines instead: the address of this one, then a name for"
            " each other, on which `sharpi join ADDRESS MODEL` runs.",
            parse=hosts_of,
        ),
    ] = None,
    gpu: Annotated[
        bool, local_option("--gpu", "Try the GPU instead, from one kernel to a whole model.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the machine's hardware and what is missing.

    Cores, instruction sets, RAM and its limits, GPUs with their driver, optional packages, and what
    --disable can switch off. Reading RAM and reading the disk are measured, which takes a few
    seconds. With `--hosts` each link between machines is measured both ways: how long 8 KB
    take, and the bandwidth. With `--gpu` each step is tried in a process of its own, and the first
    that fails comes with what to do.
    """
    if hosts is not None:
        _show_links(replace(cluster, **hosts), as_json=as_json)
        return
    if cluster.link or cluster.allows_public:
        raise UsageError("--link and --insecure-link are of use with --hosts only")
    if gpu:
        _try_gpu(as_json=as_json)
        return
    from sharpi.hardware.report import examine

    report = examine(path)
    advice = list(advise(report))
    if as_json:
        others = {"missing": to_builtins(advice), "features": FEATURES}
        print(json.dumps(to_builtins(report) | others))
        return
    for heading, text in _rows(report):
        print(fitted(f"{heading:15}{text}", sys.stdout, indent=15))
    for each in advice:
        print(fitted(f"{'missing':15}{each}", sys.stdout, indent=15))


def _try_gpu(*, as_json: bool) -> None:
    """Prints what each rung found; raises DeviceError with advice about the first that failed."""
    from sharpi.engine.first_light import COMMAND, climb, to_json

    results = []
    for result in climb(COMMAND):
        results.append(result)
        if not as_json:
            word = "ok" if result.is_passed else "FAILED"
            print(fitted(f"{word:7}{result.name}: {result.text}", sys.stdout, indent=7), flush=True)
    if as_json:
        print(to_json(results))
    failed = next((result for result in results if not result.is_passed), None)
    if failed is not None:
        raise DeviceError(f"{failed.name} failed ({failed.text}); try {failed.advice}")


def _show_links(cluster: ClusterConfig, *, as_json: bool) -> None:
    from sharpi.cli.output.plan_table import link_record, print_links
    from sharpi.cli.ranks import measured_links

    found = measured_links(cluster)
    if as_json:
        print(json.dumps(link_record(*found)))
    else:
        print_links(*found)


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
    if report.cpu_quota is not None:
        text += f"; a CPU quota of {report.cpu_quota}"
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


class Advice(Struct, frozen=True):
    """A missing package, device or setting, its purpose, and a command that helps."""

    missing: str
    needed_for: str
    command: str

    def __str__(self) -> str:
        return f"{self.missing}, needed for {self.needed_for}: {self.command}"


def advise(report: "HardwareReport") -> Iterator[Advice]:
    """Yields advice for each missing package, device or setting, the most urgent first."""
    if report.kernels_fault:
        command = "make run" if is_checkout() else "pip install --force-reinstall sharpi"
        yield Advice("CPU kernels", "running any model", command)
    yield from _gpus(report)
    if report.transparent_huge_pages == "never":
        command = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
        yield Advice("huge pages", "fast slots and buffers", command)
    if report.disk.fault:
        yield Advice("disk rate", "planning models larger than RAM", "sharpi doctor FOLDER")
    elif not report.disk.is_direct:
        command = "mv the model to a local disk with ext4, xfs or btrfs"
        yield Advice(f"direct reads on {report.disk.path}", "models larger than RAM", command)
    if not report.packages["matplotlib"]:
        yield Advice("matplotlib", "statistics as PNG", "pip install matplotlib")


def _gpus(report: "HardwareReport") -> Iterator[Advice]:
    driver = report.gpu_driver
    absent = [name for name in ("torch", "cupy") if not report.packages[name]]
    if driver is not None and driver.gpus:
        if absent:
            extra = "cuda13" if int(driver.cuda_version.split(".")[0]) >= 13 else "cuda12"
            purpose = "running on a GPU" if "cupy" in absent else "faster prompts on a GPU"
            yield Advice(" and ".join(absent), purpose, install_command(extra))
    elif report.has_gpu:
        command = "sudo ubuntu-drivers install, or your system's equivalent"
        yield Advice("NVIDIA driver", "running on the GPU", command)
    else:
        command = "sharpi plan MODEL --vram 12GiB shows the gain"
        yield Advice("NVIDIA GPU", "more speed than the CPU's", command)


def version() -> None:
    """Print the version and the CPU kernels in use."""
    print(f"sharpi {__version__}")
    print(f"CPU kernels: {_kernels_in_use()}")


def _kernels_in_use() -> str:
    """Returns the instruction set of the CPU kernels, and why no better one is used."""
    from sharpi.ops.cpu.library import better_instruction_sets, instruction_set

    try:
        used, better = instruction_set(), better_instruction_sets()
    except SharpiError as error:
        return f"none; {error}"
    if not better:
        return used
    name, features = list(better.items())[-1]
    return f"{used} ({name} needs what this processor lacks: {', '.join(features)})"
