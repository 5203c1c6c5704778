"""Files of random bytes, laid out as experts, and stores that read them."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.layer_stats import PhaseCounts
from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.native.store import ExpertStore, StoreSettings
from sharpi.experts.native.store_abi import LayerLayout, PieceLayout, StoreLayout
from sharpi.experts.policy_settings import PolicyKind, PolicySettings

LAYERS, EXPERTS, K = 4, 8, 2
PIECE_BYTES = ((5000, 5000, 9003), (), (4096, 8192, 100), (70_001, 70_001, 1_500_000))
MOE_LAYERS = [i for i, sizes in enumerate(PIECE_BYTES) if sizes]
GENERATOR = np.random.default_rng(5)
_MEMCMP = ctypes.CDLL(None).memcmp
_MEMCMP.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class ExpertFiles:
    """Two files of random bytes, and layers of different sizes with experts anywhere in them."""

    def __init__(self, folder: Path) -> None:
        self.paths = (folder / "a.gguf", folder / "b.gguf")
        self.layers: list[LayerLayout] = []
        ends = [77, 4096]
        for sizes in PIECE_BYTES:
            pieces = []
            for i, size in enumerate(sizes):
                pieces.append(PieceLayout(i % 2, ends[i % 2], size))
                ends[i % 2] += EXPERTS * size + 96
            self.layers.append(LayerLayout(EXPERTS if sizes else 0, tuple(pieces)))
        self.data = [GENERATOR.bytes(end - 96) for end in ends]
        for file, data in zip(self.paths, self.data, strict=True):
            file.write_bytes(data)
        self.arrays = [np.frombuffer(data, np.uint8) for data in self.data]

    def layout(self) -> StoreLayout:
        return StoreLayout(self.paths, tuple(self.layers))

    def piece(self, layer: int, piece: int, expert: int) -> bytes:
        where = self.layers[layer].pieces[piece]
        start = where.offset + expert * where.num_bytes
        return self.data[where.file][start : start + where.num_bytes]


class SteppedStore(ExpertStore):
    """A store with the methods that native operations call in a step."""

    def acquire(self, layer: int, routes: NDArray[np.integer]) -> None:
        """Starts to read the missed experts of routes (tokens, k).

        All experts of the routes stay in memory until they are released.
        """
        ids = np.ascontiguousarray(routes, np.int32)
        _check(self._library.sharpi_store_acquire(self.handle, layer, ids.ctypes.data, *ids.shape))

    def wait(self, layer: int, expert: int) -> None:
        """Waits until an acquired expert is in memory; raises ModelFileError if a read fails."""
        if self._library.sharpi_store_wait(self.handle, layer, expert):
            raise self.read_error()

    def is_ready(self, layer: int, expert: int) -> bool:
        """Returns True if an acquired expert is in memory, so that `wait` returns at once."""
        return bool(self._library.sharpi_store_is_ready(self.handle, layer, expert))

    def release(self, layer: int, expert: int | None = None) -> None:
        """Releases one acquired expert of a layer, or with None all of them."""
        chosen = -1 if expert is None else expert
        _check(self._library.sharpi_store_release(self.handle, layer, chosen))

    def prefetch(self, layer: int, experts: Sequence[int] | NDArray[np.integer]) -> None:
        """Starts to read experts that may be used soon, if buffers are free and nothing waits."""
        ids = np.ascontiguousarray(experts, np.int32)
        _check(self._library.sharpi_store_prefetch(self.handle, layer, ids.ctypes.data, len(ids)))

    def counts(self) -> list[PhaseCounts]:
        """Returns the counts of every layer, for all steps together."""
        return [layer.total for layer in self.layers()]

    def end_token(self) -> None:
        """Tells the policy that a step has ended; it may then change the slots."""
        _check(self._library.sharpi_store_end_token(self.handle))

    def reset_sequence(self) -> None:
        """Prepares for a new, unrelated text: the policy forgets the previous token."""
        self._library.sharpi_store_reset_sequence(self.handle)


def _check(result: int) -> None:
    assert result == 0, "no memory to look up experts"


def open_store(
    files: ExpertFiles,
    slots: int = 2,
    staging: int = K + 2,
    kind: PolicyKind = PolicyKind.SLRU,
    admission: bool = False,
    pinned: tuple[tuple[int, ...], ...] = (),
    max_prefetch_bytes: int = 1 << 24,
    direct: bool = True,
    warm_pin: int = 0,
    warm_pin_after: int = 0,
) -> SteppedStore:
    per_layer = tuple(slots if layer.num_experts else 0 for layer in files.layers)
    wanted = PolicySettings(
        kind,
        EXPERTS,
        K,
        per_layer,
        pinned,
        admission,
        load_budget=3,
        warm_pin=warm_pin,
        warm_pin_after=warm_pin_after,
    )
    chosen = StoreSettings(per_layer, staging, max_prefetch_bytes, direct=direct)
    return SteppedStore(files.layout(), chosen, NativePolicy(wanted))


def address_of(store: SteppedStore, layer: int, piece: int, expert: int) -> int:
    """Returns where the kernels would find the bytes."""
    address = (ctypes.c_void_p * EXPERTS).from_address(store.table(layer, piece))[expert]
    assert address is not None
    return int(address)


def assert_right(store: SteppedStore, files: ExpertFiles, layer: int, expert: int) -> None:
    """Asserts that an expert has its own bytes, without a copy of them."""
    store.wait(layer, expert)
    for piece, where in enumerate(files.layers[layer].pieces):
        begin = where.offset + expert * where.num_bytes
        expected = files.arrays[where.file][begin:].ctypes.data
        found = address_of(store, layer, piece, expert)
        assert _MEMCMP(found, expected, where.num_bytes) == 0, (layer, expert, piece)
