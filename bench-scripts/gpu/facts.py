"""Reports the installed packages, the GPU and the driver, and lists missing packages on a line."""

import argparse
import importlib
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.check_step import ROOT, Findings
from gpu.check_steps import TEST_PACKAGES

NEEDED = (*TEST_PACKAGES, "hypothesis")
NEEDED_FOR_A_GPU = ("torch", "cupy")
# Names on the index where they differ.
_WHEELS = {"yaml": "pyyaml", "cupy": "cupy-cuda13x"}
_ATTRIBUTES = (
    "CanMapHostMemory",
    "PageableMemoryAccess",
    "PageableMemoryAccessUsesHostPageTables",
    "CanUseHostPointerForRegisteredMem",
    "HostRegisterSupported",
    "HostRegisterReadOnlySupported",
)


def main() -> None:
    """Parses the command line and reports packages, GPU and driver."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="without a GPU")
    parser.add_argument("--only-packages", action="store_true", help="looks at no GPU")
    options = parser.parse_args()
    findings = Findings()
    needed = NEEDED if options.dry_run else NEEDED + NEEDED_FOR_A_GPU
    look_at_packages(findings, needed)
    findings.figures["python"] = platform.python_version()
    findings.figures["commit"] = _commit()
    if not (options.dry_run or options.only_packages or findings.failures):
        look_at_gpu(findings)
    sys.exit(findings.finish(options.json))


def look_at_packages(findings: Findings, needed: tuple[str, ...]) -> None:
    """Records the versions of installed packages, and a failure that lists the missing packages."""
    versions, missing = {}, []
    for name in needed:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:  # the package, or one that it needs
            lacking = (error.name or name).partition(".")[0]
            missing += [lacking] if lacking not in missing else []
        except Exception as error:  # a broken package may raise anything
            missing.append(f"{name} ({error})")
        else:
            versions[name] = str(getattr(module, "__version__", "there"))
    findings.figures["packages"] = versions
    if missing:
        names = [_WHEELS.get(name, name) for name in missing]
        findings.failures.append(
            f"missing: {', '.join(names)}; put their wheels into a folder for --wheels (`pip"
            f" download -d wheels --no-deps --only-binary=:all: --python-version {_python()}"
            f" {' '.join(name.split()[0] for name in names)}`). Steps that need them are skipped"
        )


def _python() -> str:
    """Returns this Python's version, such as "3.11", for which wheels are to be downloaded."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def look_at_gpu(findings: Findings) -> None:
    """Records the GPU's name, sizes and versions, as CuPy and the driver's library report them."""
    import cupy

    from sharpi.errors import SharpiError
    from sharpi.hardware.info import probe_gpus

    try:
        from sharpi.device.gpu import open_gpu

        device = open_gpu()
    except SharpiError as error:
        findings.failures.append(str(error))
        return
    runtime, driver = cupy.cuda.runtime, probe_gpus()
    properties = runtime.getDeviceProperties(0)
    findings.figures |= {
        "gpu": device.name,
        "driver": driver.version if driver else None,
        "driver_cuda": runtime.driverGetVersion(),
        "cuda": runtime.runtimeGetVersion(),
        "compute_capability": str(cupy.cuda.Device(0).compute_capability),
        "total_vram": int(properties["totalGlobalMem"]),
        "free_vram": device.free_bytes,
        "multiprocessors": int(properties["multiProcessorCount"]),
        "l2_bytes": int(properties["l2CacheSize"]),
        "attributes": {name: _attribute(runtime, name) for name in _ATTRIBUTES},
    }


def _attribute(runtime: Any, name: str) -> int | None:
    number = getattr(runtime, f"cudaDevAttr{name}", None)
    return None if number is None else int(runtime.deviceGetAttribute(number, 0))


def _commit() -> str | None:
    """Returns the commit of the checkout as `git describe` names it; None without a repository."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None


if __name__ == "__main__":
    main()
