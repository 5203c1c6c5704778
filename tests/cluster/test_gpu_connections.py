"""Connections between GPUs: which edges have one, the order of the work, and faults in words."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sharpi.cluster.nccl import open_pair
from sharpi.cluster.wire_count import WireCount
from sharpi.device.launch import Span
from sharpi.engine.cluster.gpu_connection import GpuConnection
from sharpi.engine.cluster.gpu_connections import GpuEnds, gpu_edges
from sharpi.errors import ClusterError
from sharpi.ops.cuda.replay.gpu_values import GpuValues

BOTH, CPU = GpuEnds(True, True, True, "auto"), GpuEnds(False, False, True, "auto")
CPU_FIRST = GpuEnds(False, True, True, "auto")  # its first layers are on the CPU
NO_NCCL = GpuEnds(True, True, False, "auto")


@pytest.mark.parametrize(
    ("ends", "edges"),
    [
        ([BOTH, BOTH], [(0, 1), (1, 0)]),
        ([BOTH, BOTH, BOTH], [(0, 1), (1, 2), (2, 0)]),
        ([BOTH, CPU], []),
        ([BOTH, CPU, BOTH], [(2, 0)]),
        ([BOTH, CPU_FIRST], [(1, 0)]),
        ([BOTH, NO_NCCL], []),
        ([BOTH, GpuEnds(True, True, True, "host")], []),
    ],
)
def test_edges_between_gpus(ends: list[GpuEnds], edges: list[tuple[int, int]]) -> None:
    assert gpu_edges(range(len(ends)), ends) == edges


def test_ranks_outside_the_ring_have_no_edges() -> None:
    assert gpu_edges([0, 2], [BOTH, BOTH, BOTH]) == [(0, 2), (2, 0)]


def test_who_insists_on_nccl_hears_who_lacks_it() -> None:
    with pytest.raises(ClusterError, match="torch has no NCCL on rank 1"):
        gpu_edges([0, 1], [GpuEnds(True, True, True, "nccl"), NO_NCCL])


class NotedDevice:
    """A device that notes its own work and the pair's; its memory is that of the host."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.fails = False

    def allocate(self, num_bytes: int) -> Any:
        return SimpleNamespace(address=0, num_bytes=num_bytes)

    @contextmanager
    def torch_stream(self) -> Iterator[None]:
        self.notes.append("(")
        yield
        self.notes.append(")")

    def copy(self, target: Span, source: Span) -> None:
        self.notes.append(f"copy to {target.offset}")

    def upload(self, target: Span, source: Any) -> None:
        self.notes.append(f"upload to {target.offset}")

    def tensor(self, span: Span) -> Span:
        return span

    def synchronise(self) -> None:
        self.notes.append("synchronise")

    def send(self, tensors: list[Span], other: int, tag: int) -> Any:
        if self.fails:
            raise RuntimeError("ncclRemoteError: gone\nand more")
        (span,) = tensors
        self.notes.append(f"send {span.num_bytes} from {span.offset} to {other}")
        return SimpleNamespace(wait=lambda: self.notes.append(f"wait {span.offset}"))

    def recv(self, tensors: list[Span], other: int, tag: int) -> Any:
        (span,) = tensors
        self.notes.append(f"receive {span.num_bytes} from {other}")
        return SimpleNamespace(wait=lambda: self.notes.append("wait"))


def connection(device: NotedDevice, *, sends: bool) -> GpuConnection:
    said = lambda error: ClusterError(f"lost: {error}")  # noqa: E731
    count = WireCount()
    return GpuConnection(device, device, 64, 2 if sends else 1, count, said, sends=sends)  # type: ignore[arg-type]


def on_gpu(device: NotedDevice, rows: int) -> GpuValues:
    span = Span(device.allocate(64), 0, 16 * rows)
    return GpuValues(device, span, 4)  # type: ignore[arg-type]


def test_a_buffer_is_filled_again_once_its_values_have_left() -> None:
    """The order of work on the device ensures this; the host does not wait."""
    device = NotedDevice()
    own = connection(device, sends=True)
    for rows in (4, 1, 2):
        own.send(on_gpu(device, rows))
    assert device.notes == [
        *("(", "copy to 64", "send 64 from 64 to 1", ")"),
        *("(", "copy to 0", "send 16 from 0 to 1", ")"),
        *("(", "wait 64", "copy to 64", "send 32 from 64 to 1", ")"),
    ]


def test_values_on_the_host_are_sent_from_the_gpu() -> None:
    device = NotedDevice()
    connection(device, sends=True).send(np.zeros((2, 4), np.float32))
    assert device.notes == ["(", "upload to 64", "send 32 from 64 to 1", ")"]


def test_received_values_are_there_before_later_work() -> None:
    device = NotedDevice()
    values = connection(device, sends=False).receive(3, 4)
    assert device.notes == ["(", "receive 48 from 0", "wait", ")"]
    assert (values.span.num_bytes, values.width) == (48, 4)


@pytest.mark.parametrize("rows", [5, -1])
def test_more_than_a_step_is_refused(rows: int) -> None:
    device = NotedDevice()
    with pytest.raises(ClusterError, match="more than a step can have"):
        connection(device, sends=False).receive(rows, 4)
    assert device.notes == []


def test_an_error_of_nccl_is_raised_as_one_of_the_group() -> None:
    device = NotedDevice()
    device.fails = True
    with pytest.raises(ClusterError, match="lost: ncclRemoteError"):
        connection(device, sends=True).send(on_gpu(device, 1))


def test_a_pair_is_told_who_sends_and_not_to_end_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """torch opens NCCL with the same arguments (torch/distributed/distributed_c10d.py)."""
    environment: dict[str, str] = {}
    monkeypatch.setattr("sharpi.cluster.nccl.os.environ", environment)
    made: list[tuple[Any, ...]] = []

    class Nccl:
        Options = SimpleNamespace

        def __init__(self, *arguments: Any) -> None:
            made.append(arguments)

    torch = SimpleNamespace(distributed=SimpleNamespace(ProcessGroupNCCL=Nccl))
    open_pair(torch, "store", "eth7", sends=True)
    open_pair(torch, "store", "eth7", sends=False)
    assert [each[:3] for each in made] == [("store", 0, 2), ("store", 1, 2)]
    assert made[0][3]._timeout.days > 1
    assert environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert environment["NCCL_SOCKET_IFNAME"] == "=eth7"
