"""The steps of the check, in order: steps that others need and the most important ones first."""

import hashlib
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpu.check_step import ROOT, Step

PART_SECONDS = 525  # for the steps of a part: under nine minutes with its report
# Steps that others need come in every part; made once, they take no time in the next.
_ALWAYS = ("packages", "build")
# A build by few or busy cores takes longer than a part has left for it; part 0 then comes first.
_BUILD_SECONDS = {0: 370.0, None: 460.0}
_USUAL_BUILD_SECONDS = 100.0
# A dry run compiles emulated kernels at their first use, perhaps on few and busy cores.
_DRY_RUN_FACTOR = 6
PARTS = {
    0: ("what needs no GPU", ("synthetic", "skewed")),
    1: ("does it run", ("first", "compile", "graph", "tests", "references", "types")),
    2: ("how fast is it", ("kernels", "synthetic", "resident", "again", "quarter")),
    3: ("with some of the experts in VRAM", ("skewed", "residency", "llama_cpp")),
    4: ("is every access valid", ("memcheck", "racecheck")),
}
# Packages that the programs import: sharpi's on a GPU, and what makes and reads test files.
RUN_PACKAGES = ("numpy", "msgspec", "tokenizers", "jinja2", "gguf", "yaml")
TEST_PACKAGES = (*RUN_PACKAGES, "pytest")
_SCRIPTS = "bench-scripts"
_QUARTER = 4
_TEST_SECONDS = 110
_SKEW, _SKEWED_LAYERS = "0.5", 12  # a quarter of the experts gets two thirds of the routes


@dataclass(frozen=True, slots=True)
class Choice:
    """The options of a check."""

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
        """The path of a smaller model with skewed routes, as real models have."""
        return self.folder / "skewed.gguf"


def steps(choice: Choice, part: int | None = None) -> Iterator[Step]:
    """Yields all steps of a check, or those of one part."""
    wanted = None if part is None else (*_ALWAYS, *PARTS[part][1])
    factor = _DRY_RUN_FACTOR if choice.is_dry else 1
    for step in (_packages(choice, part), *_all(choice, part)):
        if wanted is None or step.name in wanted:
            yield replace(step, seconds=factor * step.seconds)


def seconds_of(part: int | None, *, is_dry: bool) -> float:
    """Returns the time limit, in seconds, of all steps together."""
    num_parts = len(PARTS) - 1 if part is None else 1
    return PART_SECONDS * num_parts * (_DRY_RUN_FACTOR if is_dry else 1)


def _packages(choice: Choice, part: int | None) -> Step:
    """Returns the step that names missing packages; in part 0, it does not look for a GPU."""
    facts = "gpu/facts.py"
    if part == 0:
        return _script("packages", "packages", 20, choice, facts, "--only-packages", needs=())
    return _script("packages", "packages, GPU and driver", 30, choice, facts, needs=())


def _all(choice: Choice, part: int | None) -> Iterator[Step]:
    build_seconds = _BUILD_SECONDS.get(part, _USUAL_BUILD_SECONDS)
    yield build_step(choice, build_seconds, unused_sets(_processor_flags()))
    if not choice.is_dry:
        first = ("gpu/first_light.py", str(choice.folder / "first_light.json"))
        yield replace(_script("first", "first light", 80, choice, *first), has_findings=False)
        yield _script("compile", "kernels compiled by NVRTC", 60, choice, "gpu/compile.py")
    yield _script("graph", "graphs give what launches give", 30, choice, "gpu/models.py", "graph")
    tests = ("gpu/check_tests.py", "--seconds", str(_TEST_SECONDS))
    yield _script(
        "tests", "tests that need a GPU", _TEST_SECONDS + 10, choice, *tests, needs=TEST_PACKAGES
    )
    references = ("gpu/models.py", "references", "--folder", str(choice.folder))
    yield _script("references", "logits of every reference", 50, choice, *references)
    types = ("gpu/models.py", "types", "--folder", str(choice.folder))
    yield _script("types", "logits in every quant type", 50, choice, *types)
    seconds = ("--seconds", str(choice.kernel_seconds))
    yield _script("kernels", "speed of the kernels", 90, choice, "gpu/kernels.py", *seconds)
    yield from _synthetic(choice)
    yield from _residency(choice)
    for tool, limit in (("memcheck", 220), ("racecheck", 170)):
        flags = ("gpu/check_sanitizer.py", tool)
        yield _script(tool, f"compute-sanitizer {tool}", limit, choice, *flags)


def build_step(choice: Choice, seconds: float, unused: Sequence[str]) -> Step:
    """Returns the step that builds the CPU library.

    `unused`: instruction sets that are compiled without optimisation, to save time.
    """
    build = choice.folder / "build"
    jobs = len(os.sched_getaffinity(0))
    commands = (
        f"cmake -S kernels/cpu -B '{build}' -DCMAKE_BUILD_TYPE=Release"
        f" '-DSHARPI_UNUSED_SETS={';'.join(unused)}'"
        f" && cmake --build '{build}' --parallel {jobs}"
    )
    return Step(
        "build", "the CPU library", ("sh", "-c", commands), seconds, has_findings=False,
        makes=build / "libsharpi_cpu.so", made_of=_hash_of(ROOT / "kernels"),
    )  # fmt: skip


def unused_sets(flags: Collection[str]) -> tuple[str, ...]:
    """Returns the library's instruction sets that a processor with these flags never uses.

    kernels/cpu/isa.cpp makes this choice. Returns an empty tuple if the processor is unknown.
    """
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}.issubset(flags):
        return ("sse41", "avx2", "avx_vnni")
    if {"avx2", "fma", "f16c", "bmi2"}.issubset(flags):
        return ("sse41", "avx512", "avx512_vbmi", "avx512_bf16")
    return ()


def _processor_flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()


def _hash_of(folder: Path) -> str:
    """Returns a hash of the names and contents of all files in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _model(name: str, title: str, limit: float, path: Path, *flags: str) -> Step:
    write = (sys.executable, f"{_SCRIPTS}/synthetic_moe.py", str(path), *flags)
    return Step(
        name, title, write, limit, has_findings=False, needs=RUN_PACKAGES,
        makes=path, made_of=" ".join(flags),
    )  # fmt: skip


def _synthetic(choice: Choice) -> Iterator[Step]:
    title = "the synthetic model is written"
    yield _model("synthetic", title, 75, choice.model, *choice.shape)
    decode = ("gpu/decode.py", str(choice.model))
    if choice.ram:
        decode += ("--ram", choice.ram)
    yield _script("resident", "all experts in VRAM", 90, choice, *decode)
    yield _script("again", "the same tokens again", 50, choice, *decode, "--greedy-only")
    slots = ("--moe-slots", str(max(1, choice.experts // _QUARTER)))
    yield _script("quarter", "a quarter of the experts in VRAM", 85, choice, *decode, *slots)


def _residency(choice: Choice) -> Iterator[Step]:
    """Yields the steps that measure shares of the experts in VRAM, in every miss mode."""
    layers = () if choice.is_dry else ("--layers", str(_SKEWED_LAYERS))
    shape = (*choice.shape, *layers, "--skew", _SKEW)
    model = str(choice.skewed_model)
    yield _model("skewed", "a model of skewed routes is written", 60, choice.skewed_model, *shape)
    measure = ("gpu/residency.py", model, "--experts", str(choice.experts))
    if choice.ram:
        measure += ("--ram", choice.ram)
    yield _script("residency", "shares of the experts in VRAM", 220, choice, *measure)
    compare = ("gpu/llama_bench.py", model, "--layers", str(_SKEWED_LAYERS))
    yield _script("llama_cpp", "llama.cpp on the same file", 110, choice, *compare)


def _script(
    name: str,
    title: str,
    seconds: float,
    choice: Choice,
    *command: str,
    needs: tuple[str, ...] = RUN_PACKAGES,
) -> Step:
    file, *arguments = command
    dry = ("--dry-run",) if choice.is_dry else ()
    program = (sys.executable, f"{_SCRIPTS}/{file}", *arguments, *dry)
    return Step(name, title, program, seconds, needs=needs)
