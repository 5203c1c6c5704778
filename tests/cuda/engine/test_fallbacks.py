"""Nothing optional stops an answer: each feature fails on the emulated GPU, with one note."""

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice

from sharpi.device.device import HostArray, Work
from sharpi.device.driver import DependentLaunchError, StreamWordError
from sharpi.device.gpu_errors import KernelError
from sharpi.device.launch import Kernel, Launch
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence as Tokens
from sharpi.errors import DeviceError
from sharpi.settings import ExpertConfig, RunConfig

pytestmark = pytest.mark.native
MODEL = Path(__file__).parents[2] / "references" / "data" / "qwen3moe.gguf"
IDS = np.random.default_rng(3).integers(3, 200, 40).tolist()  # enough for the library's products
TILES = "tiled_attention", "matvec_tiled", "experts_tiled_gate_up"


class FaultyGpu(CpuDevice):
    """Refuses to compile `uncompiled`, dependent launches, or graphs, with `graph_error`."""

    def __init__(
        self,
        uncompiled: Collection[str] = (),
        graph_error: DeviceError | None = None,
        launches_early: bool = True,
        locks: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(check=False, **options)
        self._uncompiled, self._graph_error = uncompiled, graph_error
        self._launches_early, self._locks = launches_early, locks

    def prepare(self, kernels: Collection[Kernel]) -> None:
        for kernel in sorted(kernels, key=str):
            if kernel.file in self._uncompiled:
                error = KernelError(f"{kernel.file} cannot be compiled")
                error.file = kernel.file
                raise error

    def launch(self, launch: Launch) -> None:
        assert launch.kernel.file not in self._uncompiled
        if launch.is_dependent and not self._launches_early:
            raise DependentLaunchError("the driver refuses them")
        super().launch(launch)

    def record(self, work: Sequence[Work]) -> Work:
        if self._graph_error is not None:
            raise self._graph_error
        return super().record(work)

    def page_lock(self, arrays: Sequence[HostArray]) -> object:
        return super().page_lock(arrays) if self._locks else None

    def matmul(self, *arguments: Any) -> None:
        assert self.library_fault is None
        super().matmul(*arguments)

    def attend(self, *arguments: Any) -> None:
        assert self.library_fault is None
        super().attend(*arguments)


def opened(gpu: CpuDevice, **options: Any) -> Engine:
    config = RunConfig(model=MODEL, **{"context_size": 128, "vram": 1 << 30, **options})
    return load_engine(config, open_device=lambda _: gpu)


def logits(gpu: CpuDevice, **options: Any) -> np.ndarray:
    """Returns the logits after a prompt and after four tokens, of which the last are graphs."""
    engine = opened(gpu, **options)
    assert engine.plan is not None
    sequence = Tokens(engine.runner)
    found = [sequence.extend(ids).copy() for ids in (IDS, [5], [6], [7], [8])]
    engine.close()
    return np.stack(found)


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return logits(CpuDevice(check=False))


REFUSED = DeviceError("the driver refuses")
FAULTS: dict[str, tuple[Callable[[], CpuDevice], list[str]]] = {
    "no library": (
        lambda: FaultyGpu(library_fault="torch is missing"),
        ["without the library, .*own kernels compute prompts: torch is missing"],
    ),
    "no graphs": (
        lambda: FaultyGpu(graph_error=REFUSED),
        ["without programmatic-launches, .*the driver refuses", "without graphs, .*by itself"],
    ),
    "no words in graphs": (
        lambda: FaultyGpu(graph_error=StreamWordError("no words")),
        ["without graphs, .*no words"],
    ),
    "no early launches": (
        lambda: FaultyGpu(launches_early=False),
        ["without programmatic-launches, .*the driver refuses them"],
    ),
    "no folded kernel": (
        lambda: FaultyGpu(["matvec_mixed", "slot_route"]),
        ["without folding, .*(matvec_mixed|slot_route) cannot be compiled"],
    ),
    "no tiles": (
        lambda: FaultyGpu(TILES, attends=False),
        ["without tensor-cores, .*cannot be compiled"],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_gpu_goes_on_without_it(
    fault: str, expected: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    make, notes = FAULTS[fault]
    slots = {"moe_slots": 4} if fault == "no folded kernel" else {}
    found = logits(make(), **slots)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert len(said) == len(notes), said
    assert all(
        re.search(f"^note: the GPU goes on {n}", s) for n, s in zip(notes, said, strict=True)
    )
    error = np.linalg.norm(found - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert np.median(error) < 0.02


def test_the_cpu_computes_what_no_kernel_can(
    expected: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    found = logits(FaultyGpu(["rms_norm"]))
    note = "note: the CPU computes, not the GPU: rms_norm cannot be compiled"
    assert capsys.readouterr().err.splitlines() == [note]
    error = np.linalg.norm(found - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert np.median(error) < 0.02
    with pytest.raises(DeviceError, match="rms_norm"):
        opened(FaultyGpu(["rms_norm"]), device="cuda")


@pytest.mark.parametrize("has_words", [True, False])
def test_memory_that_cannot_be_page_locked(has_words: bool) -> None:
    """The CPU computes missed experts; if the GPU cannot ask it for them, the whole model."""
    gpu = FaultyGpu(locks=False, can_register=False, has_stream_words=has_words)
    engine = opened(gpu, moe_slots=4, experts=ExpertConfig(prefetch=False))
    notes = [note for note in engine.notes if "page-lock" in note]
    assert (len(notes) == 1) == has_words
    assert engine.logits(np.array(IDS, np.int32)).shape
    engine.close()
