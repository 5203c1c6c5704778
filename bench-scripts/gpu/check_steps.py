"""The steps of the check, in order: first those that others need, and the most important ones."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpu.check_step import Step

_SCRIPTS = "bench-scripts"
_QUARTER = 4
_SKEW, _SKEWED_LAYERS = "0.5", 12  # a quarter of the experts gets two thirds of the routes


@dataclass(frozen=True, slots=True)
class Choice:
    """Options of a check."""

    folder: Path  # of the synthetic model and all other files of the run
    is_dry: bool
    shape: tuple[str, ...]  # the synthetic model's sizes, as flags
    experts: int  # of a layer of that model
    ram: str | None = None
    kernel_seconds: float = 60

    @property
    def model(self) -> Path:
        """The path of the synthetic model."""
        return self.folder / "synthetic.gguf"

    @property
    def skewed_model(self) -> Path:
        """The path of a smaller model in which some experts are used much more, as in real ones."""
        return self.folder / "skewed.gguf"


def steps(choice: Choice) -> Iterator[Step]:
    """Yields all steps."""
    yield _script("packages", "packages, GPU and driver", 60, choice, "gpu_facts.py")
    yield _build(choice)
    if not choice.is_dry:
        yield _script("compile", "kernels compiled by NVRTC", 90, choice, "gpu_compile.py")
    references = ("gpu_models.py", "references", "--folder", str(choice.folder))
    yield _script("references", "logits of every reference", 90, choice, *references)
    types = ("gpu_models.py", "types", "--folder", str(choice.folder))
    yield _script("types", "logits in every quant type", 90, choice, *types)
    yield _script("graph", "graphs give what launches give", 30, choice, "gpu_models.py", "graph")
    seconds = ("--seconds", str(choice.kernel_seconds))
    yield _script("kernels", "speed of the kernels", 90, choice, "gpu_kernels.py", *seconds)
    yield from _synthetic(choice)
    yield from _residency(choice)
    yield _script("tests", "tests that need a GPU", 150, choice, "gpu_check_tests.py")
    for tool in ("memcheck", "racecheck"):
        flags = ("gpu_check_sanitizer.py", tool)
        yield _script(tool, f"compute-sanitizer {tool}", 75, choice, *flags)


def _build(choice: Choice) -> Step:
    build = choice.folder / "build"
    jobs = len(os.sched_getaffinity(0))
    commands = (
        f"cmake -S kernels/cpu -B '{build}' -DCMAKE_BUILD_TYPE=Release"
        f" && cmake --build '{build}' --parallel {jobs}"
    )
    return Step("build", "the CPU library", ("sh", "-c", commands), 150, has_findings=False)


def _synthetic(choice: Choice) -> Iterator[Step]:
    write = (sys.executable, f"{_SCRIPTS}/synthetic_moe.py", str(choice.model), *choice.shape)
    yield Step("synthetic", "the synthetic model is written", write, 75, has_findings=False)
    decode = ("gpu_decode.py", str(choice.model))
    if choice.ram:
        decode += ("--ram", choice.ram)
    yield _script("resident", "all experts in VRAM", 90, choice, *decode)
    yield _script("again", "the same tokens again", 60, choice, *decode, "--greedy-only")
    slots = ("--moe-slots", str(max(1, choice.experts // _QUARTER)))
    yield _script("quarter", "a quarter of the experts in VRAM", 90, choice, *decode, *slots)


def _residency(choice: Choice) -> Iterator[Step]:
    """Yields the steps with shares of the experts in VRAM, in every miss mode."""
    layers = () if choice.is_dry else ("--layers", str(_SKEWED_LAYERS))
    shape = (*choice.shape, *layers, "--skew", _SKEW)
    model = str(choice.skewed_model)
    write = (sys.executable, f"{_SCRIPTS}/synthetic_moe.py", model, *shape)
    yield Step("skewed", "a model of skewed routes is written", write, 60, has_findings=False)
    measure = ("gpu_residency.py", model, "--experts", str(choice.experts))
    if choice.ram:
        measure += ("--ram", choice.ram)
    yield _script("residency", "shares of the experts in VRAM", 180, choice, *measure)
    compare = ("gpu_llama_cpp.py", model, "--layers", str(_SKEWED_LAYERS))
    yield _script("llama_cpp", "llama.cpp on the same file", 120, choice, *compare)


def _script(name: str, title: str, seconds: float, choice: Choice, *command: str) -> Step:
    file, *arguments = command
    dry = ("--dry-run",) if choice.is_dry else ()
    return Step(name, title, (sys.executable, f"{_SCRIPTS}/{file}", *arguments, *dry), seconds)
