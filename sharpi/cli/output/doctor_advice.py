"""Lists the packages, drivers and settings that a machine lacks, with the commands to add them."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import asdict

from sharpi.hardware.info import GpuDriver
from sharpi.hardware.report import HardwareReport
from sharpi.resources import install_command, is_checkout

_HUGE_PAGES_ON = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"


class Advice(Struct, frozen=True):
    """A missing package, device or setting, its purpose, and a command that helps."""

    missing: str
    needed_for: str
    command: str

    def to_dict(self) -> dict[str, str]:
        """Returns the advice as a JSON object."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.missing}, needed for {self.needed_for}: {self.command}"


_DRIVER = Advice(
    "NVIDIA driver",
    "running on the GPU",
    "sudo ubuntu-drivers install, or your system's equivalent",
)
_GPU = Advice(
    "NVIDIA GPU", "more speed than the CPU's", "sharpi plan MODEL --vram 12GiB shows the gain"
)


# Packages, their purpose, and the command that installs them; None: a sharpi extra installs them.
_PURPOSES = (
    (("starlette", "uvicorn", "prometheus-client"), "sharpi serve", None),
    (("huggingface_hub",), "sharpi pull, and models by name", None),
    (("llguidance",), "--json-schema, --json-object and --grammar", None),
    (("matplotlib",), "statistics as PNG", "pip install matplotlib"),
)


def advise(report: HardwareReport) -> list[Advice]:
    """Returns advice for each missing package, device or setting, the most urgent first."""
    return [
        *_kernels(report),
        *_gpus(report),
        *_memory(report),
        *_disk(report),
        *_packages(report),
    ]


def _kernels(report: HardwareReport) -> Iterator[Advice]:
    if report.kernels_fault:
        yield Advice(
            "CPU kernels",
            "running any model",
            "make run" if is_checkout() else "pip install --force-reinstall sharpi",
        )


def _gpus(report: HardwareReport) -> Iterator[Advice]:
    if report.gpu_driver is None or not report.gpu_driver.gpus:
        yield _DRIVER if report.has_gpu else _GPU
        return
    absent = [name for name in ("torch", "cupy") if not report.packages[name]]
    if absent:
        command = install_command(_extra(report.gpu_driver))
        yield Advice(" and ".join(absent), "running on a GPU", command)


def _extra(driver: GpuDriver) -> str:
    """Returns the pip extra with packages for a CUDA version that this driver supports."""
    return "cuda13" if int(driver.cuda_version.split(".")[0]) >= 13 else "cuda12"


def _memory(report: HardwareReport) -> Iterator[Advice]:
    if report.transparent_huge_pages == "never":
        yield Advice("huge pages", "fast slots and buffers", _HUGE_PAGES_ON)


def _disk(report: HardwareReport) -> Iterator[Advice]:
    disk = report.disk
    if disk.fault:
        yield Advice("disk rate", "planning models larger than RAM", "sharpi doctor FOLDER")
    elif not disk.is_direct:
        yield Advice(
            f"direct reads on {disk.path}",
            "models larger than RAM",
            "mv the model to a local disk with ext4, xfs or btrfs",
        )


def _packages(report: HardwareReport) -> Iterator[Advice]:
    for names, purpose, command in _PURPOSES:
        absent = [name for name in names if not report.packages[name]]
        if absent:
            yield Advice(" and ".join(absent), purpose, command or install_command())
