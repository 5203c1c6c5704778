"""First light: rungs from one kernel to a whole model, by which a GPU is tried for the first time.

Each rung runs in a process of its own, because a GPU that has failed once answers nothing more in
the same process, and because a rung may hang.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import get_args

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from sharpi.device.device import AttendShape, Device
from sharpi.device.gpu import open_gpu
from sharpi.device.launch import Launch, Span
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence as TokenSequence
from sharpi.errors import DeviceError, SharpiError
from sharpi.ops.cuda.launchers.rms_norm import rms_norm
from sharpi.resources import demo_model
from sharpi.settings import ExpertConfig, Feature, Miss, RunConfig
from sharpi.units import format_bytes

RUNG_SECONDS = 40
_GPU_FEATURES: tuple[Feature, ...] = get_args(Feature)[:5]
_SAME_BITS = ("graphs", "folding", "programmatic-launches")
_ROWS, _WIDTH = 4, 256
_LOCKED_BYTES = 256 << 20
_NUM_TOKENS = 40
_FARTHEST = 0.1  # the largest usual distance of logits from the CPU's, as a share


def _norms(device: Device, *, is_early: bool = False, is_captured: bool = False) -> str:
    """Norms rows twice, the second time from the first result; raises DeviceError if wrong."""
    x = np.random.default_rng(1).standard_normal((_ROWS, _WIDTH), np.float32)
    weight = np.full(_WIDTH, 2, np.float32)
    spans = [_uploaded(device, each) for each in (x, weight, x, x)]
    first, second = (
        rms_norm(
            source, spans[1], target, None, tokens=_ROWS, width=_WIDTH, groups=1,
            weight_per_group=False, epsilon=0.0, planes=0,
        )
        for source, target in ((spans[0], spans[2]), (spans[2], spans[3]))
    )  # fmt: skip
    _run(device, [first, replace(second, is_dependent=is_early)], is_captured=is_captured)
    found = np.empty_like(x)
    device.download(spans[3], found)
    expected = 2 * x / np.sqrt((x * x).mean(axis=1, keepdims=True))
    if not np.allclose(found, expected, rtol=1e-4):
        raise DeviceError("its results are wrong")
    return device.name


def _run(device: Device, launches: Sequence[Launch], *, is_captured: bool) -> None:
    device.prepare(launch.kernel for launch in launches)
    work = [partial(device.launch, launch) for launch in launches]
    for each in work:
        each()
    if is_captured:
        device.upload(_out(launches[-1]), np.zeros((_ROWS, _WIDTH), np.float32))
        device.record(work)()
    device.synchronise()


def _out(launch: Launch) -> Span:
    span = launch.arguments[min(launch.writes)]
    assert isinstance(span, Span)
    return span


def _uploaded(device: Device, array: npt.NDArray[np.float32]) -> Span:
    span = Span(device.allocate(array.nbytes), 0, array.nbytes)
    device.upload(span, array)
    return span


def _words(device: Device, *, is_captured: bool = False) -> str:
    """Has the GPU wait for a word of the host and write another; raises DeviceError if refused."""
    if not device.has_stream_words:
        raise DeviceError("the driver has no stream memory operations")
    memory, host = device.mapped(8)
    words = host.view(np.uint32)
    words[:] = 1, 0
    asked, answer = Span(memory, 0, 4), Span(memory, 4, 4)
    work = [
        partial(device.await_word, asked, 1, lambda: None),
        partial(device.write_word, answer, 7),
    ]
    for each in [device.record(work)] if is_captured else work:
        each()
    device.synchronise()
    if words[1] != 7:
        raise DeviceError("the GPU has not written the word")
    return "the GPU and the CPU can call each other"


def _page_lock(device: Device) -> str:
    """Page-locks RAM and copies it to the GPU; raises DeviceError if the driver refuses."""
    data, start = np.ones(_LOCKED_BYTES, np.uint8), time.perf_counter()
    locked = device.page_lock([data])
    memory = device.register_array(data)
    if locked is None or memory is None:
        raise DeviceError(f"the driver does not page-lock {format_bytes(data.nbytes)} of RAM")
    seconds, target = time.perf_counter() - start, device.allocate(data.nbytes)
    device.synchronise()
    start = time.perf_counter()
    device.copy(Span(target, 0, data.nbytes), Span(memory, 0, data.nbytes))
    device.synchronise()
    rates = data.nbytes / seconds, data.nbytes / (time.perf_counter() - start)
    return "locks {}/s, copies {}/s".format(*map(format_bytes, map(int, rates)))


def _library(device: Device) -> str:
    """Has torch multiply; raises DeviceError if it cannot."""
    if device.library_fault is not None:
        raise DeviceError(device.library_fault)
    attends = device.attends(AttendShape(0, 0, 32, 4, 128, 128, 0.1, 64))
    return "torch multiplies" + (" and attends" if attends else "; its attention is not used")


def _model(
    device: Device,
    disabled: Sequence[Feature] = (),
    slots: int | None = None,
    miss: Miss = "auto",
    *,
    has_same_bits: bool = False,
) -> str:
    """Compares the demo model's logits with the CPU's; raises DeviceError if they are far apart."""
    config = RunConfig(
        model=demo_model(), context_size=128, batch_size=64, disabled=tuple(disabled),
        moe_slots=slots, experts=ExpertConfig(miss=miss),
    )  # fmt: skip
    expected, _ = _logits(replace(config, device="cpu", moe_slots=None), open_gpu)
    found, seconds = _logits(replace(config, device="cuda"), lambda _: device)
    far = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    if not np.median(far) < _FARTHEST:
        raise DeviceError(f"logits are {np.median(far):.2g} away from the CPU's")
    if has_same_bits:
        config = replace(config, disabled=_GPU_FEATURES)
        plain, _ = _logits(replace(config, device="cuda"), lambda _: device)
        if not np.array_equal(found, plain):
            raise DeviceError("logits have not the bits of a GPU with nothing on")
    return f"{np.median(far):.1e} away from the CPU's logits, {1e3 * seconds:.2f} ms a token"


def _logits(
    config: RunConfig, open_device: Callable[[int], Device]
) -> tuple[npt.NDArray[np.float32], float]:
    """Returns the logits after a prompt and after each of some tokens, and seconds per token."""
    prompt = np.random.default_rng(1).integers(3, 2000, 40).tolist()
    with load_engine(config, open_device=open_device) as engine:
        sequence = TokenSequence(engine.runner)
        rows, start = [sequence.extend(prompt).copy()], time.perf_counter()
        rows += [sequence.extend([token]).copy() for token in range(5, 5 + _NUM_TOKENS)]
        seconds = (time.perf_counter() - start) / (len(rows) - 1)
    return np.stack(rows), seconds


class Rung(Struct, frozen=True):
    """A step of the ladder; `run` returns what was found, and raises SharpiError if it fails."""

    name: str
    run: Callable[[Device], str]
    advice: str  # what a user can do if it fails


_SETUP = "`sharpi doctor`, which names driver and packages"


def _rungs() -> Iterator[Rung]:
    graphs, early = "--disable graphs", "--disable programmatic-launches"
    yield Rung("a kernel", _norms, _SETUP)
    yield Rung("a graph", partial(_norms, is_captured=True), graphs)
    yield Rung("an early launch", partial(_norms, is_early=True), early)
    yield Rung(
        "an early launch in a graph", partial(_norms, is_early=True, is_captured=True), early
    )
    yield Rung("words", _words, "--moe-miss bus")
    yield Rung("words in a graph", partial(_words, is_captured=True), "--moe-miss bus")
    yield Rung("page-locked RAM", _page_lock, "--moe-miss cpu")
    yield Rung("torch", _library, "the command above, or go on without torch")
    plain = partial(_model, disabled=_GPU_FEATURES)
    yield Rung("a model with nothing on", plain, "--device cpu")
    for feature in _GPU_FEATURES:
        others = [each for each in _GPU_FEATURES if each != feature]
        name = f"a model with {feature} alone"
        run = partial(_model, disabled=others, has_same_bits=feature in _SAME_BITS)
        yield Rung(name, run, f"--disable {feature}")
    yield Rung("a model with everything on", _model, f"--disable {','.join(_GPU_FEATURES)}")
    yield Rung("misses over the bus", partial(_model, slots=4, miss="bus"), "--moe-miss cpu")
    yield Rung("misses on the CPU", partial(_model, slots=4, miss="cpu"), "--moe-miss bus")


RUNGS = tuple(_rungs())


class Result(Struct, frozen=True):
    """What a rung's process found; `text` is one line."""

    name: str
    is_passed: bool
    text: str
    seconds: float
    advice: str


def climb(
    command: Sequence[str], rungs: Iterable[Rung] = RUNGS, seconds: float = RUNG_SECONDS
) -> Iterator[Result]:
    """Yields the result of each rung, which `command` with its name runs for at most `seconds`.

    Without the first rung there are no others.
    """
    for rung in rungs:
        start = time.monotonic()
        is_passed, text = _run_process([*command, rung.name], seconds)
        yield Result(rung.name, is_passed, text, time.monotonic() - start, rung.advice)
        if rung is RUNGS[0] and not is_passed:
            return


def _run_process(command: Sequence[str], seconds: float) -> tuple[bool, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False, f"did not end within {seconds:g} s"
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    return not done.returncode, lines[-1] if lines else f"exit status {done.returncode}"


COMMAND = (sys.executable, "-m", "sharpi.engine.first_light")


def run_rung(name: str, open_device: Callable[[int], Device] = open_gpu) -> int:
    """Runs one rung in this process and prints a line; returns the exit status."""
    (rung,) = (each for each in RUNGS if each.name == name)
    try:
        print(rung.run(open_device(0)))
    except SharpiError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def to_json(results: Iterable[Result]) -> str:
    """Returns results as JSON, by name."""
    return json.dumps(
        {r.name: {"ok": r.is_passed, "what": r.text, "s": round(r.seconds, 1)} for r in results},
        indent=1,
    )


if __name__ == "__main__":
    sys.exit(run_rung(sys.argv[1]))
