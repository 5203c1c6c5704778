"""Runs kernels of a few lines (small/*.cu) on ints, to test the emulator."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from cpu_device import FORWARD, CpuDevice
from cpu_memory import host_bytes

from sharpi.device.launch import Argument, Kernel, Launch, Span

FOLDER = Path(__file__).parent / "small"


class SmallKernels:
    """The entry points of one file."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.text = (FOLDER / f"{name}.cu").read_text(encoding="utf-8")
        self._texts = {name: f'#line 1 "{name}.cu"\n{self.text}'}

    def run(
        self,
        entry: str,
        *arguments: Argument,
        grid: int = 1,
        block: int = 32,
        shared_bytes: int = 0,
        order: int = FORWARD,
        writes: Sequence[int] = (0,),
        referenced: tuple[Span, ...] = (),
        is_dependent: bool = False,
    ) -> None:
        """Runs with checks; raises LaunchError."""
        launch = Launch(
            Kernel(self._name, entry),
            (grid, 1, 1),
            block,
            arguments,
            frozenset(writes),
            shared_bytes,
            referenced,
            is_dependent,
        )
        CpuDevice(order=order, texts=self._texts).launch(launch)

    def line(self, code: str) -> str:
        """Returns `file.cu:line` of the first line that contains the text."""
        lines = self.text.splitlines()
        return f"{self._name}.cu:{next(i for i, line in enumerate(lines, 1) if code in line)}"


def integers(values: Sequence[int]) -> Span:
    """Uploads integers to a memory of their own."""
    array = np.array(values, np.int32)
    span = Span(CpuDevice().allocate(array.nbytes), 0, array.nbytes)
    CpuDevice().upload(span, array)
    return span


def values(span: Span) -> list[int]:
    """The ints of a span."""
    found: list[int] = host_bytes(span).view(np.int32).tolist()
    return found
