"""StepReplay: starts the calls of a recorded step, one by one or as a CUDA graph."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

import numpy as np
from msgspec.structs import replace

from sharpi.device.device import Event, Work
from sharpi.device.driver import DependentLaunchError, StreamWordError
from sharpi.device.gpu_kernels import waits_for_last_launch
from sharpi.device.launch import Kernel, Launch, Span, overlap
from sharpi.errors import DeviceError
from sharpi.ops.cuda.expert_slots.gpu_expert_weights import GpuExpertWeights
from sharpi.ops.cuda.launchers import elementwise, matvec, slot_route
from sharpi.ops.cuda.launchers.attention import attention, heads
from sharpi.ops.cuda.launchers.experts import experts, host_items
from sharpi.ops.cuda.recorded import (
    Attend,
    AwaitWord,
    BatchedProduct,
    Call,
    Calls,
    Copy,
    SideStream,
    StepShape,
    WaitFor,
    WriteWord,
)
from sharpi.ops.cuda.recording import Recording

COUNTERS = 4096  # int32 zeros that tell the last block of a launch that it is the last


def folded(calls: Iterable[Call], counters: Span) -> Iterator[Call]:
    """Yields the calls; one launch replaces two if a kernel can do the work of both.

    The next launch may be folded into that one in turn. The results have the same bits. `counters`
    are int32 that are 0 between launches.
    """
    before: Call | None = None
    for call in calls:
        both = _both(before, call, counters)
        if both is None and before is not None:
            yield before
        before = call if both is None else both
    if before is not None:
        yield before


def _both(first: Call | None, second: Call, counters: Span) -> Launch | None:
    if not (isinstance(first, Launch) and isinstance(second, Launch)):
        return None
    match first.kernel.file, second.kernel.file:
        case "heads", "attention" | "split_attention":
            return attention.with_heads(first, second)
        case "attention" | "split_attention", "attention_merge":
            return attention.with_merge(first, second, counters)
        case "matvec", "rms_norm":
            return matvec.with_norm(first, second, counters)
        case "matvec", "route":
            return matvec.with_route(first, second, counters)
        case "matvec", "slot_policy":
            return slot_route.with_slots(first, second)
        case "gather_experts", "experts_gate_up":
            return host_items.with_gather(first, second)
        case "experts_down", "rms_norm":
            return experts.down_with_norm(first, second, counters)
        case _ if _writes_over(first, second):
            return None
        case "heads", "join":
            return heads.with_join(first, second)
        case "split", "quantise":
            return elementwise.with_quantise(first, second)
        case "experts_product", "quantise":
            return experts.product_with_quantise(first, second)
    return None


def _writes_over(first: Launch, second: Launch) -> bool:
    """Returns True if a launch writes to memory that the launch before it reads."""
    read = [each for each in first.arguments if isinstance(each, Span)]
    written = [each for i in second.writes if isinstance(each := second.arguments[i], Span)]
    return any(overlap(one, other) for one in read for other in written)


def overlapping(calls: Iterable[Call]) -> Iterator[Call]:
    """Yields the calls, with programmatic dependent launches where possible.

    A launch is marked as dependent if its kernel itself waits for the preceding launch, and if the
    preceding call is a launch. After a copy or another call, the launch starts in stream order.
    """
    before: Call | None = None
    for call in calls:
        is_after = isinstance(before, Launch)
        before = call
        if is_after and isinstance(call, Launch) and waits_for_last_launch(call.kernel.file):
            yield replace(call, is_dependent=True)
        else:
            yield call


MAX_GRAPHS = 32  # the most graphs that are kept


class StepReplay:
    """Runs the operations of a step: functions that yield the calls for a step's shape.

    Decode steps run as CUDA graphs, one for each step shape. A graph is captured at the second step
    of its shape, because the first step has to load the kernels. Other steps make their calls one
    by one.
    """

    def __init__(
        self, recording: Recording, operations: Sequence[Calls], expert_weights: GpuExpertWeights
    ) -> None:
        self._device, self._features = recording.device, recording.features
        self._operations, self._expert_weights = operations, expert_weights
        self.graphs: OrderedDict[StepShape, tuple[Work, tuple[int, ...]]] = OrderedDict()
        self._seen: set[StepShape] = set()
        self._events: dict[Hashable, Event] = {}
        self._counters = Span(self._device.allocate(4 * COUNTERS), 0, 4 * COUNTERS)
        self._device.upload(self._counters, np.zeros(COUNTERS, np.int32))

    def replay(self, step: StepShape) -> None:
        """Starts a step of this shape.

        If the step requests experts from the host, waits until the host has computed them.
        """
        slotted = self._expert_weights.slotted
        if slotted is not None and not step.is_decode and step.sequences == 1:
            slotted.begin(step)
        if step in self.graphs:
            self.graphs.move_to_end(step)
            self._start(*self.graphs[step])
            return
        if step.is_decode and self._features.has("graphs") and step in self._seen:
            self._keep(step, *self._captured(step))
            self._start(*self.graphs[step])
            return
        if step.is_decode:
            self._seen.add(step)
        self.start(self._operations, step)

    def _captured(self, step: StepShape) -> tuple[Work, tuple[int, ...]]:
        """Captures a graph, or drops what prevents it; returns its launch and its requests."""
        calls = self.calls(step)
        work = [self._bound(call) for call in calls]
        try:
            return self._device.record(work), _requests(calls)
        except StreamWordError as error:
            self._features.drop("graphs", error)
        except DeviceError as error:
            if self._features.has("programmatic-launches"):  # a graph may be refused for them
                self._features.drop("programmatic-launches", error)
                return self._captured(step)
            self._features.drop("graphs", error)
        return partial(_do_all, work), _requests(calls)

    def _keep(self, step: StepShape, graph: Work, requests: tuple[int, ...]) -> None:
        """Keeps a graph; if there are MAX_GRAPHS already, drops the least recently used one."""
        while len(self.graphs) >= MAX_GRAPHS:
            self.graphs.popitem(last=False)
        self.graphs[step] = graph, requests

    def _start(self, work: Work, requests: tuple[int, ...]) -> None:
        """Calls `work`, and waits for the experts that these layers request from the host."""
        if not requests:
            work()
            return
        host = self._expert_weights.host
        host.begin(requests)
        try:
            work()
        except BaseException:
            host.cancel()
            raise
        host.end()

    def drop_graphs(self) -> None:
        """Drops all graphs, because the addresses in them are no longer valid."""
        self.graphs.clear()
        self._seen.clear()

    def start(self, operations: Sequence[Calls], step: StepShape) -> None:
        """Runs some operations without a graph, and starts each call as soon as it is yielded.

        So the GPU computes while the host prepares later calls. From the first call that requests
        experts from the host on, all calls are prepared before any of them starts, because the host
        must first know the layers of all requests.
        """
        calls = self._made(operations, step)
        for call in calls:
            if isinstance(call, WriteWord | AwaitWord):
                rest = [call, *calls]
                work = partial(_do_all, [self._bound(each) for each in rest])
                self._start(work, _requests(rest))
                return
            self._bound(call)()

    def calls(self, step: StepShape) -> list[Call]:
        """Returns the calls of a step of this shape, in order."""
        return list(self._made(self._operations, step))

    def _made(self, operations: Sequence[Calls], step: StepShape) -> Iterator[Call]:
        """Yields the operations' calls; in decode, launches are folded and may start early."""
        calls, features = _calls(operations, step), self._features
        if step.is_decode and features.has("folding"):
            calls = folded(calls, self._counters)
        if step.is_decode and features.has("programmatic-launches"):
            calls = overlapping(calls)
        return calls

    def kernels(self, steps: Iterable[StepShape]) -> set[Kernel]:
        """Returns the kernels that steps of these shapes launch."""
        calls = chain.from_iterable(map(self.calls, steps))
        return {launch.kernel for call in calls for launch in _launches(call)}

    def _bound(self, call: Call) -> Work:
        device = self._device
        match call:
            case Launch():
                return partial(self._launch, call)
            case BatchedProduct():
                return partial(device.batched_matmul, *call)
            case Attend():
                return partial(device.attend, *call)
            case Copy():
                return partial(device.copy, *call)
            case WriteWord():
                return partial(device.write_word, *call)
            case AwaitWord():
                return partial(device.await_word, call.word, call.value, call.host_work)
            case SideStream():
                return partial(
                    self._on_side_stream, call.key, [self._bound(each) for each in call.calls]
                )
            case WaitFor():
                return partial(self._wait_for, call.key)
        return partial(device.matmul, *call)

    def _launch(self, launch: Launch) -> None:
        try:
            self._device.launch(launch)
        except DependentLaunchError as error:
            self._features.drop("programmatic-launches", error)
            self._device.launch(replace(launch, is_dependent=False))

    def _on_side_stream(self, key: Hashable, work: Sequence[Work]) -> None:
        self._events[key] = self._device.on_side_stream(work)

    def _wait_for(self, key: Hashable) -> None:
        self._device.after(self._events[key])


def _calls(operations: Sequence[Calls], step: StepShape) -> Iterator[Call]:
    """Yields the calls of these operations, without launches of empty grids."""
    calls = (call for operation in operations for call in operation(step))
    return (call for call in calls if not isinstance(call, Launch) or all(call.grid))


def _launches(call: Call) -> Iterator[Launch]:
    if isinstance(call, Launch):
        yield call
    elif isinstance(call, SideStream):
        for each in call.calls:
            yield from _launches(each)


def _do_all(work: Sequence[Work]) -> None:
    for each in work:
        each()


def _requests(calls: Sequence[Call]) -> tuple[int, ...]:
    """Returns the layer of each call that waits for experts of the host, in order."""
    return tuple(call.layer for call in calls if isinstance(call, AwaitWord))
