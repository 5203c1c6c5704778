"""The expert store gives every expert's own bytes, resident, late, predicted or evicted."""

import os
import random
import threading
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from expert_files import (
    EXPERTS,
    LAYERS,
    MOE_LAYERS,
    ExpertFiles,
    K,
    SteppedStore,
    assert_right,
    open_store,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpi.errors import ModelFileError
from sharpi.experts.policy_settings import PolicyKind
from sharpi.system.reservations import held_bytes

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ExpertFiles:
    return ExpertFiles(tmp_path_factory.mktemp("files"))


MakeStore = Callable[..., SteppedStore]


@pytest.fixture
def make_store() -> Iterator[MakeStore]:
    made: list[SteppedStore] = []

    def make(files: ExpertFiles, **settings: Any) -> SteppedStore:
        made.append(open_store(files, **settings))
        return made[-1]

    yield make
    for store in made:
        store.close()
        store.policy.close()


def run_token(store: SteppedStore, files: ExpertFiles, routes: list[list[int]]) -> None:
    for layer, route in zip(MOE_LAYERS, routes, strict=True):
        store.acquire(layer, np.array([route]))
        for expert in sorted(route):
            assert_right(store, files, layer, expert)
        store.release(layer)
    store.end_token()


def random_routes(generator: random.Random) -> list[list[int]]:
    return [generator.sample(range(EXPERTS), K) for _ in MOE_LAYERS]


@pytest.mark.slow
@pytest.mark.parametrize("slots", [0, 1, K, EXPERTS])
@pytest.mark.parametrize("direct", [True, False])
def test_every_expert_is_its_own(
    files: ExpertFiles, make_store: MakeStore, slots: int, direct: bool
) -> None:
    store = make_store(files, slots=slots, direct=direct)
    generator = random.Random(slots)
    for _ in range(60):
        run_token(store, files, random_routes(generator))
    counts = [store.counts()[layer] for layer in MOE_LAYERS]
    assert all(each.accesses == 60 * K for each in counts)
    assert all(each.hits + each.late + each.loads == each.accesses for each in counts)
    if slots == EXPERTS:
        assert all(each.loads == EXPERTS for each in counts)
    assert store.counts()[1].accesses == 0
    assert store.totals().is_direct or not direct


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "admission"), list(zip(PolicyKind, cycle([True, False]), strict=False))
)
def test_every_policy(
    files: ExpertFiles, make_store: MakeStore, kind: PolicyKind, admission: bool
) -> None:
    pinned = ((1, 2),) * LAYERS if kind is PolicyKind.STATIC else ()
    store = make_store(files, slots=3, kind=kind, admission=admission, pinned=pinned)
    store.start()
    generator = random.Random(1)
    for _ in range(150):
        run_token(store, files, random_routes(generator))
    policy = store.policy.all_counts()
    for layer in MOE_LAYERS:
        counts = store.counts()[layer]
        # An expert in flight is a hit for the policy, but not for the thread that waits.
        assert counts.hits + counts.late >= policy[layer].hits
        assert counts.hits > 0


def test_what_the_policy_loads_early_is_read(files: ExpertFiles, make_store: MakeStore) -> None:
    store = make_store(files, slots=3, kind=PolicyKind.LEARNED_PREFETCH, max_prefetch_bytes=0)
    generator = random.Random(3)
    for _ in range(150):
        run_token(store, files, random_routes(generator))
    assert sum(counts.early_loads for counts in store.policy.all_counts()) > 0
    for counts, policy in zip(store.counts(), store.policy.all_counts(), strict=True):
        assert counts.hits + counts.late == policy.hits
    assert store.totals().dropped_prefetches == 0


@pytest.mark.parametrize("slots", [0, 2, EXPERTS])
def test_a_batch_of_more_experts_than_buffers(
    files: ExpertFiles, make_store: MakeStore, slots: int
) -> None:
    store = make_store(files, slots=slots, staging=3)
    assert store._library.sharpi_store_max_group(store.handle) == 3
    routes = np.array([[i % EXPERTS, (i + 1) % EXPERTS] for i in range(20)])
    for _ in range(2):
        for layer in MOE_LAYERS:
            store.acquire(layer, routes)
            for expert in range(EXPERTS):
                assert_right(store, files, layer, expert)
                store.release(layer, expert)
        store.end_token()
    run_token(store, files, [[0, 5]] * len(MOE_LAYERS))


def test_a_prefetch_is_used_late_or_wasted(files: ExpertFiles, make_store: MakeStore) -> None:
    store = make_store(files, slots=1)
    store.prefetch(3, [4, 5])
    run_token(store, files, [[0, 1], [0, 1], [4, 0]])
    counts = store.counts()[3]
    assert (counts.prefetched, counts.prefetch_used) == (2, 1)
    assert counts.hits + counts.late == 1
    assert counts.loads == 1
    store.prefetch(3, [6])
    while not store.is_ready(3, 6):
        pass
    run_token(store, files, [[0, 1], [0, 1], [0, 2]])
    assert store.counts()[3].wasted_bytes >= store.layout.layers[3].expert_bytes
    assert store.totals().prefetched_bytes >= store.counts()[3].wasted_bytes


def test_a_guess_makes_room_for_what_is_needed(files: ExpertFiles, make_store: MakeStore) -> None:
    store = make_store(files, slots=0, staging=K)
    store.prefetch(0, [1, 2, 3])
    assert store.counts()[0].prefetched == 0  # a token may need all buffers
    store = make_store(files, slots=0, staging=K + 1)
    store.prefetch(3, [1, 1, 2, 3])
    store.prefetch(3, [1])
    assert store.counts()[3].prefetched == 1
    store.acquire(2, np.array([[0, 1], [2, 3]]))
    for expert in (0, 1, 2):
        assert_right(store, files, 2, expert)
    store.release(2)


def test_the_oldest_guesses_leave_a_full_queue(files: ExpertFiles, make_store: MakeStore) -> None:
    store = make_store(files, slots=EXPERTS, staging=K + 6, max_prefetch_bytes=2 << 20)
    for expert in range(6):
        store.prefetch(3, [expert])
    for expert in range(6):
        store.acquire(3, np.array([[expert, 7]]))
        assert_right(store, files, 3, expert)
        store.release(3)
    store = make_store(files, max_prefetch_bytes=0)
    store.prefetch(3, [1, 2])
    assert store.totals().dropped_prefetches == 2
    run_token(store, files, [[1, 2]] * len(MOE_LAYERS))
    assert store.counts()[3].prefetch_used == 0


def test_threads_wait_together(files: ExpertFiles, make_store: MakeStore) -> None:
    store = make_store(files, slots=2)
    faults: list[BaseException] = []

    def worker(layer: int, route: list[int]) -> None:
        try:
            for expert in route:
                assert_right(store, files, layer, expert)
        except BaseException as fault:
            faults.append(fault)

    generator = random.Random(2)
    for _ in range(40):
        for layer, route in zip(MOE_LAYERS, random_routes(generator), strict=True):
            store.acquire(layer, np.array([route]))
            store.prefetch(MOE_LAYERS[0], [generator.randrange(EXPERTS)])
            threads = [threading.Thread(target=worker, args=(layer, route)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            store.release(layer)
        store.end_token()
    assert not faults
    assert store.counts()[3].stall_seconds > 0


def test_the_layout_counts_what_is_allocated(files: ExpertFiles, make_store: MakeStore) -> None:
    store = make_store(files, slots=3, staging=5)
    slots = store.settings.slots
    assert store.totals().memory_bytes == files.layout().memory_bytes(slots, 5)


def test_a_missing_file_is_named(files: ExpertFiles, make_store: MakeStore, tmp_path: Path) -> None:
    absent = ExpertFiles(tmp_path)
    absent.paths[1].unlink()
    with pytest.raises(ModelFileError, match=r"b\.gguf: No such file"):
        make_store(absent)


ROUTES = st.lists(
    st.lists(st.integers(0, EXPERTS - 1), min_size=K, max_size=K, unique=True),
    min_size=len(MOE_LAYERS),
    max_size=len(MOE_LAYERS),
)
KINDS = ("token", "batch", "prefetch", "reset", "resize", "abandon")
OPERATIONS = st.lists(st.tuples(st.sampled_from(KINDS), ROUTES), max_size=20)


def test_slots_that_go_give_their_memory_back(files: ExpertFiles, make_store: MakeStore) -> None:
    store = make_store(files, slots=EXPERTS, kind=PolicyKind.LRU)
    generator = random.Random(9)
    held = [held_bytes(os.getpid())]
    sizes = [store.totals().memory_bytes]
    for slots in (1, EXPERTS):
        run_token(store, files, random_routes(generator))
        store.resize([slots] * LAYERS)
        held.append(held_bytes(os.getpid()))
        sizes.append(store.totals().memory_bytes)
    assert store.slots == (EXPERTS, 0, EXPERTS, EXPERTS)
    given = (EXPERTS - 1) * sum(layer.slot_bytes for layer in files.layers)
    assert sizes == [sizes[0], sizes[0] - given, sizes[0]]
    assert held[0] - held[1] > 0.9 * given
    assert held[2] - held[1] > 0.9 * given


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    operations=OPERATIONS,
    slots=st.integers(0, EXPERTS),
    staging=st.integers(K, K + 4),
    kind=st.sampled_from(PolicyKind),
    budget=st.sampled_from([0, 2_000_000, 1 << 24]),
)
def test_any_order(
    files: ExpertFiles,
    operations: list[tuple[str, list[list[int]]]],
    slots: int,
    staging: int,
    kind: PolicyKind,
    budget: int,
) -> None:
    store = open_store(files, slots, staging, kind, max_prefetch_bytes=budget)
    for name, routes in operations:
        perform(store, files, name, routes)
    store.close()
    store.policy.close()


def perform(store: SteppedStore, files: ExpertFiles, name: str, routes: list[list[int]]) -> None:
    if name == "token":
        run_token(store, files, routes)
    elif name == "prefetch":
        for layer, route in zip(MOE_LAYERS, routes, strict=True):
            store.prefetch(layer, route)
    elif name == "reset":
        store.reset_sequence()
    elif name == "resize":  # also while a layer is in use, which keeps its slots
        store.acquire(0, np.array(routes[:1]))
        store.resize([sum(route) % EXPERTS for route in (*routes, routes[0])])
        for expert in routes[0]:
            assert_right(store, files, 0, expert)
        store.release(0)
        store.end_token()
        store.resize([routes[0][0]] * LAYERS)
    elif name == "abandon":  # a step that is abandoned in its first layer
        store.acquire(0, np.array(routes[:1]))
        store.release(0)
    else:
        run_batch(store, files, [[route, route[::-1], routes[0]] for route in routes])


def run_batch(store: SteppedStore, files: ExpertFiles, routes: list[list[list[int]]]) -> None:
    for layer, rows in zip(MOE_LAYERS, routes, strict=True):
        store.acquire(layer, np.array(rows))
        for expert in sorted({expert for row in rows for expert in row}):
            assert_right(store, files, layer, expert)
            store.release(layer, expert)
    store.end_token()


@pytest.mark.parametrize("kind", [PolicyKind.SLRU, PolicyKind.LRU])
def test_slots_exchanged_with_another_tier(
    files: ExpertFiles, make_store: MakeStore, kind: PolicyKind
) -> None:
    """An expert that another tier gives back needs no read; one that moved up has no slot here."""
    store = make_store(files, slots=3, kind=kind)
    store.start()
    generator, num_done = random.Random(2), 0
    for _ in range(120):
        run_token(store, files, random_routes(generator))
        for layer in MOE_LAYERS:
            leaves, enters = generator.sample(range(EXPERTS), 2)
            had = store.stored(layer, leaves), store.stored(layer, enters)
            pieces = [np.frombuffer(files.piece(layer, i, enters), np.uint8) for i in range(3)]
            done = store.exchange(layer, leaves, enters, pieces)
            assert done == (had[0] is not None and had[1] is None)
            if done:
                assert store.stored(layer, leaves) is None
                assert_right(store, files, layer, enters)
            num_done += done
    assert num_done > 50
    for layer in MOE_LAYERS:
        for expert in range(EXPERTS):
            stored = store.stored(layer, expert)
            assert (stored is not None) == store.policy.states().resident[layer, expert]
            for i, piece in enumerate(stored or ()):
                assert piece.tobytes() == files.piece(layer, i, expert)


def test_a_pinned_expert_keeps_its_slot(files: ExpertFiles, make_store: MakeStore) -> None:
    store = make_store(files, slots=3, kind=PolicyKind.SLRU, pinned=((1,),) * LAYERS)
    store.start()
    layer = MOE_LAYERS[0]
    store.acquire(layer, np.array([[1, 2]]))
    store.wait(layer, 1)
    store.wait(layer, 2)
    pieces = [np.frombuffer(files.piece(layer, i, 5), np.uint8) for i in range(3)]
    assert not store.exchange(layer, 2, 5, pieces), "in use"
    store.release(layer)
    store.end_token()
    assert not store.exchange(layer, 1, 5, pieces), "pinned"
    assert store.exchange(layer, 2, 5, pieces)


def tasks() -> set[Path]:
    return set(Path("/proc/self/task").iterdir())


def naps(threads: set[Path]) -> int:
    """Returns how often these threads have waited for something."""
    status = (each.joinpath("status").read_text() for each in threads)
    return sum(int(text.split("voluntary_ctxt_switches:")[1].split()[0]) for text in status)


def test_threads_that_read_sleep_while_nothing_is_missed(
    files: ExpertFiles, make_store: MakeStore
) -> None:
    before = tasks()
    store = make_store(files, slots=EXPERTS, kind=PolicyKind.LRU)
    readers = tasks() - before
    generator = random.Random(4)
    for _ in range(40):
        run_token(store, files, random_routes(generator))
    assert all(each.loads == EXPERTS for each in (store.counts()[i] for i in MOE_LAYERS))
    waited = naps(readers)
    for _ in range(100):
        run_token(store, files, random_routes(generator))
    assert readers
    assert naps(readers) - waited < 100
