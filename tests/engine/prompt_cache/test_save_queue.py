"""Pages and states that wait to be written are copied, or dropped, before they change."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

from sharpi.engine.prompt_cache import save_queue
from sharpi.engine.prompt_cache.record import Bytes, Record
from sharpi.engine.prompt_cache.save_queue import Pending, SaveQueue

PAGE, STATE = 8, 4


class Memory:
    """Pages and states of a few bytes."""

    page_bytes, state_bytes = PAGE, STATE

    def __init__(self, *, is_host_memory: bool = True) -> None:
        self.is_host_memory = is_host_memory
        self.pages = np.zeros((6, PAGE), np.uint8)
        self.states = np.zeros((3, STATE), np.uint8)
        self.readers: set[str] = set()

    def read_page(self, page: int, target: Bytes, *, is_partial: bool = False) -> None:
        self.readers.add(threading.current_thread().name)
        target[:] = self.pages[page]

    def write_page(self, page: int, source: Bytes) -> None:
        self.pages[page] = source

    def read_state(self, state: int, target: Bytes) -> None:
        target[:] = self.states[state]

    def write_state(self, state: int, source: Bytes) -> None:
        self.states[state] = source


def pending(page: int, state: int | None = None) -> Pending:
    size = 0 if state is None else STATE
    return Pending(Record(b"", b"p", 0, (page,), PAGE, size), page, state, time_ns=1)


def queue_of(
    memory: Memory, is_stored: Callable[[Record], bool] = lambda record: False
) -> SaveQueue:
    return SaveQueue(memory, is_stored)  # type: ignore[arg-type]


def contents(queue: SaveQueue) -> list[list[int] | None]:
    queue.close()
    found = []
    while (each := queue.take()) is not None:
        found.append(None if each.data is None else each.data.tolist())
    return found


def test_pages_and_states_are_taken_in_order() -> None:
    memory = Memory()
    memory.pages[1], memory.states[2] = 7, 9
    queue = queue_of(memory)
    queue.add([pending(0), pending(1, 2)])
    assert contents(queue) == [[0] * PAGE, [7] * PAGE + [9] * STATE]


def test_what_changes_is_copied_before() -> None:
    memory = Memory()
    queue = queue_of(memory)
    queue.add([pending(0), pending(1, 2), pending(3)])
    queue.copy_or_drop_page(0)
    queue.copy_or_drop_state(2)
    memory.pages[:], memory.states[:] = 5, 5
    assert contents(queue) == [[0] * PAGE, [0] * (PAGE + STATE), [5] * PAGE]


def test_beyond_the_limit_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save_queue, "MAX_COPIED_BYTES", PAGE + 1)
    memory = Memory()
    queue = queue_of(memory)
    queue.add([pending(0), pending(1), pending(2)])
    queue.copy_or_drop_page(0)
    queue.copy_or_drop_page(1)
    memory.pages[:] = 5
    assert contents(queue) == [[0] * PAGE, [5] * PAGE]


def test_what_is_on_disk_is_not_copied() -> None:
    queue = queue_of(Memory(), lambda record: record.tokens == (1,))
    queue.add([pending(0), pending(1)])
    queue.copy_or_drop_page(1)
    assert contents(queue) == [[0] * PAGE, None]


def test_memory_of_a_gpu_is_read_by_the_engines_thread_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(save_queue, "MAX_COPIED_BYTES", 2 * PAGE)
    memory = Memory(is_host_memory=False)
    queue = queue_of(memory)
    queue.add([pending(number) for number in range(5)])
    queue.close()
    found: list[Bytes | None] = []

    def take_all() -> None:
        while (each := queue.take()) is not None:
            found.append(each.data)

    writer = threading.Thread(target=take_all, name="writer")
    writer.start()
    while writer.is_alive():
        queue.copy_some()
        writer.join(0.001)
    assert len(found) == 5
    assert memory.readers == {threading.current_thread().name}


def test_cleared_it_ends() -> None:
    queue = queue_of(Memory())
    queue.add([pending(0)])
    queue.clear()
    assert contents(queue) == []
