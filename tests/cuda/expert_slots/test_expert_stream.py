"""A batch's experts pass through two buffers, with copies that are as late as they may be."""

from collections.abc import Iterable

import numpy as np
import pytest
from cpu_device import CpuDevice
from cpu_memory import host_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpi.errors import DeviceError
from sharpi.ops.cuda.expert_slots.prefill_expert_access import Chunk, ExpertStream
from sharpi.ops.cuda.expert_slots.slot_memory import HostExpertCopies
from sharpi.ops.cuda.recorded import Call, Copy, SideStream, WaitFor

EXPERTS = 7
SIZES = {3: (32, 16, 48), 4: (16, 16), 9: (64,)}  # bytes of an expert's part of each tensor


class Batch:
    """Makes the calls of a batch; calls of the side stream run when something waits for them."""

    def __init__(self) -> None:
        self._waiting: dict[object, list[Copy]] = {}
        self.num_copies = 0

    def carry_out(self, calls: Iterable[Call]) -> None:
        for call in calls:
            if isinstance(call, SideStream):
                assert call.key not in self._waiting, "a buffer is filled twice"
                self._waiting[call.key] = [c for c in call.calls if isinstance(c, Copy)]
            else:
                assert isinstance(call, WaitFor)
                for copy in self._waiting.pop(call.key):
                    host_bytes(copy.target)[:] = host_bytes(copy.source)
                    self.num_copies += 1

    @property
    def is_done(self) -> bool:
        return not self._waiting


def random_host_copies(
    device: CpuDevice,
) -> tuple[dict[int, list[np.ndarray]], dict[int, list[HostExpertCopies]]]:
    rng = np.random.default_rng(0)
    data = {
        layer: [rng.integers(0, 256, (EXPERTS, size), np.uint8) for size in sizes]
        for layer, sizes in SIZES.items()
    }
    host_copies = {
        layer: [HostExpertCopies(device, tensor, EXPERTS) for tensor in tensors]
        for layer, tensors in data.items()
    }
    return data, host_copies


def bytes_at(stream: ExpertStream, address: int, size: int) -> np.ndarray:
    """Returns the bytes at an address of the buffers."""
    for span in stream.referenced:
        if span.address <= address and address + size <= span.address + span.num_bytes:
            return host_bytes(span.part(address - span.address, size))
    raise AssertionError("an address outside the buffers")


def check(stream: ExpertStream, chunk: Chunk, data: list[np.ndarray], slots: np.ndarray) -> None:
    """Checks that every missing expert of the chunk is at its address in the table."""
    for tensor, wanted in enumerate(data):
        table = stream.addresses(chunk.layer, tensor)
        for expert in range(chunk.first, chunk.first + chunk.count):
            if slots[expert] >= 0:
                continue
            found = bytes_at(stream, int(table[expert]), wanted.shape[1])
            assert np.array_equal(found, wanted[expert])


@given(st.data(), st.integers(1, EXPERTS))
@settings(max_examples=60, deadline=None)
def test_everything_is_there_when_its_chunk_computes(data: st.DataObject, capacity: int) -> None:
    device = CpuDevice(check=False)
    tensors, host_copies = random_host_copies(device)
    stream = ExpertStream(device, host_copies, capacity)
    for _ in range(2):  # the second batch finds the buffers as the first left them
        has_slot = st.lists(st.booleans(), min_size=EXPERTS, max_size=EXPERTS)
        slots = {n: np.where(data.draw(has_slot), 0, -1).astype(np.int32) for n in SIZES}
        stream.begin(slots)
        batch, seen = Batch(), 0
        for layer in SIZES:
            for chunk in stream.chunks(layer):
                batch.carry_out(stream.wait_for(chunk))
                check(stream, chunk, tensors[layer], slots[layer])
                batch.carry_out(stream.refill_after(chunk))
                seen += chunk.count
        assert seen == len(SIZES) * EXPERTS
        assert batch.is_done


def test_memory_that_cannot_be_page_locked_is_refused() -> None:
    with pytest.raises(DeviceError, match="cannot page-lock the experts"):
        random_host_copies(CpuDevice(check=False, can_register=False))


def test_neighbours_are_one_copy() -> None:
    device = CpuDevice(check=False)
    _, host_copies = random_host_copies(device)
    stream = ExpertStream(device, host_copies, EXPERTS)
    stream.begin({4: np.array([-1, -1, 0, -1, -1, -1, 1], np.int32)})
    batch = Batch()
    (chunk,) = stream.chunks(4)
    batch.carry_out(stream.wait_for(chunk))
    assert batch.num_copies == 2 * len(SIZES[4]), "two runs of each tensor"
