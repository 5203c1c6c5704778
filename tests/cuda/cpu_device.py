"""A device whose memory is the host's and whose kernels run on the CPU, thread by thread."""

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial

import cpu_library
import numpy as np
import numpy.typing as npt
from check_samples import SAMPLES
from cpu_kernel import REFERENCED, Cells, CpuKernel, PreparedLaunch, Region, Shape
from cpu_memory import CpuMemory, RegisteredMemory, host_bytes, memory_of
from kernel_build import build_kernels
from type_groups import build_defines

from sharpi.device.device import AttendShape, Device, Event, HostArray, Work
from sharpi.device.gpu_kernels import defines, kernel_source
from sharpi.device.launch import Kernel, Launch, Memory, Span
from sharpi.errors import DeviceError

FORWARD, BACKWARD = (
    0,
    1,
)  # orders of a block's threads; any other number is the seed of a random one

_WORD_BYTES = 4

# A graph's launches by their identity, each kept so that no other one gets it.
Replayed = dict[int, tuple[Launch, PreparedLaunch]]


class CpuDevice:
    """`sharpi.device.device.Device` on the host's memory, of which it takes `memory_bytes` at most.

    With `check`, a launch fails with kernel, line, block and thread where threads race, an access
    is misaligned or outside the arguments' bounds, or shared memory is read before it is written.
    Where models run, some of the launches are checked (`SAMPLES`).
    `order` is that of the threads. `texts` are kernels' sources that stand in for files of a name;
    their launches are all checked.
    `can_register`: whether host memory can be page-locked in place. `attends`: whether there
    is a library's attention. `others`: more devices of the same machine. Streams are simulated in
    the order of the calls: where a GPU would wait for the host, the host has its turn, and a word
    that it does not write then fails the test.
    """

    def __init__(
        self,
        check: bool = True,
        order: int = FORWARD,
        memory_bytes: int = 8 << 30,
        texts: Mapping[str, str] | None = None,
        can_register: bool = True,
        attends: bool = True,
        has_stream_words: bool = True,
        others: Sequence["CpuDevice"] = (),
        name: str = "the CPU in place of a GPU",
        library_fault: str | None = None,
    ) -> None:
        self.library_fault = library_fault
        self._others, self.name = tuple(others), name
        self._can_register, self._attends = can_register, attends
        self.has_stream_words = has_stream_words
        self._check = check
        self._order = order
        self._free_bytes = memory_bytes
        self._texts = dict(texts or {})
        self._replayed: Replayed | None = None  # of the graph that runs

    @property
    def num_gpus(self) -> int:
        return 1 + len(self._others)

    def open_peer(self, index: int) -> Device:
        if index > len(self._others):
            raise DeviceError(f"cuda:{index} is not there")
        return self._others[index - 1]

    @property
    def free_bytes(self) -> int:
        return self._free_bytes

    def allocate(self, num_bytes: int) -> Memory:
        if num_bytes > self._free_bytes:
            raise DeviceError(f"{self.name} has {self._free_bytes} bytes left, not {num_bytes}")
        memory = CpuMemory(num_bytes)
        self._give_back(-num_bytes)
        weakref.finalize(memory, self._give_back, num_bytes)
        return memory

    def _give_back(self, num_bytes: int) -> None:
        self._free_bytes += num_bytes

    def mapped(self, num_bytes: int) -> tuple[Memory, npt.NDArray[np.uint8]]:
        memory = CpuMemory(num_bytes)
        return memory, memory.array

    def page_lock(self, arrays: Sequence[HostArray]) -> object:
        return True if self._can_register else None

    def register_array(self, array: HostArray) -> Memory | None:
        return RegisteredMemory(array) if self._can_register else None

    def upload(self, target: Span, source: HostArray) -> None:
        data = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        host_bytes(target)[: len(data)] = data

    def download(self, source: Span, target: HostArray) -> None:
        data = host_bytes(source)[: target.nbytes]
        target[...] = data.view(target.dtype).reshape(target.shape)

    def copy(self, target: Span, source: Span) -> None:
        assert target.num_bytes == source.num_bytes
        host_bytes(target)[:] = host_bytes(source)

    def write_word(self, word: Span, value: int) -> None:
        assert self.has_stream_words
        host_bytes(word).view(np.uint32)[0] = value

    def await_word(self, word: Span, value: int, host_work: Work) -> None:
        at = host_bytes(word).view(np.uint32)
        host_work()
        assert at[0] == value, "the GPU would wait for ever"

    def on_side_stream(self, work: Sequence[Work]) -> Event:
        for each in work:
            each()
        return None

    def after(self, event: Event) -> None:
        """Does nothing: work on the side stream is done when its call returns."""

    def record_event(self) -> Event:
        return None

    def wait(self, event: Event) -> None:
        """Does nothing: all work is done when its call returns."""

    def prepare(self, kernels: Iterable[Kernel]) -> None:
        """Does nothing: kernels are compiled when a test launches them."""

    def launch(self, launch: Launch) -> None:
        is_a_tests = launch.kernel.file in self._texts
        is_checked = self._check and (is_a_tests or SAMPLES.takes(launch.kernel))
        if is_checked or self._replayed is None:
            self._prepared(launch, is_checked).run()
            return
        if id(launch) not in self._replayed:
            self._replayed[id(launch)] = launch, self._prepared(launch, False)
        _, prepared = self._replayed[id(launch)]
        prepared.run()

    def _prepared(self, launch: Launch, is_checked: bool) -> PreparedLaunch:
        own = self._texts.get(launch.kernel.file)
        text = kernel_source(launch.kernel.file) if own is None else own
        kernel = _kernel(launch.kernel, text, is_checked, own is not None)
        shape = Shape(
            launch.grid, launch.block, launch.shared_bytes, self._order, launch.is_dependent
        )
        regions = list(launch_regions(launch)) if is_checked else None
        return kernel.prepared(shape, launch.arguments, regions)

    def matmul(self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int]) -> None:
        cpu_library.matmul(x, weights, out, shape)

    def batched_matmul(
        self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int, int]
    ) -> None:
        cpu_library.batched_matmul(x, weights, out, shape)

    def attends(self, shape: AttendShape) -> bool:
        return self._attends

    def attend(
        self, q: Span, keys: Span, values: Span, page_table: Span, out: Span, shape: AttendShape
    ) -> None:
        cpu_library.attend(q, keys, values, page_table, out, shape)

    def record(self, work: Sequence[Work]) -> Work:
        calls, prepared = tuple(work), Replayed()

        def replay() -> None:
            self._replayed = prepared
            try:
                for call in calls:
                    call()
            finally:
                self._replayed = None

        return replay

    def synchronise(self) -> None:
        """Does nothing: all work is done when its call returns."""


def launch_regions(launch: Launch) -> Iterator[Region]:
    """Returns the memory that the launch may touch; races need memory that is written.

    A kernel of MXFP4 may read the last word of what it only reads as a whole; see load_words.cuh.
    """
    spans = [(i, a) for i, a in enumerate(launch.arguments) if isinstance(a, Span)]
    written = {id(span.memory) for i, span in spans if i in launch.writes}
    for index, span in spans + [(REFERENCED, span) for span in launch.referenced]:
        cells = memory_of(span).cells() if id(span.memory) in written else ()
        begin, end = span.address, span.address + span.num_bytes
        if launch.kernel.quant_type == "mxfp4" and index not in launch.writes:
            end += -end % _WORD_BYTES
        yield Region(begin, end, Cells(*cells), index, index in launch.writes)


@cache
def _kernel(kernel: Kernel, text: str, checked: bool, is_a_tests: bool) -> CpuKernel:
    """Builds the kernel, with line numbers at once for a test's own text: most have a fault."""
    names = defines(kernel.quant_type, kernel.size) if is_a_tests else build_defines(kernel)
    build = partial(build_kernels, text, names, checked)
    return CpuKernel(kernel.entry, build(is_a_tests), partial(build, True))
