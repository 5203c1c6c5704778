"""The Python interface of the native slot policies in kernels/cpu/experts."""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.policy_settings import Counts, PolicySettings, Swap
from sharpi.experts.trace.trace import Steps
from sharpi.native import NativeObject, check_layouts, declare
from sharpi.ops.cpu.library import load_library


class NativeSettings(Structure):
    """Mirrors `PolicyParams` of kernels/cpu/experts/policy/policy_api.cpp."""

    _fields_ = (
        ("kind", c_int32),
        ("num_layers", c_int32),
        ("num_experts", c_int32),
        ("experts_per_token", c_int32),
        ("admission", c_int32),
        ("warm_pin", c_int32),
        ("warm_pin_after", c_int64),
        ("load_budget", c_float),
        ("moving_slots", c_int32),
        ("slots", POINTER(c_int32)),
        ("num_pinned", POINTER(c_int32)),
        ("pinned", POINTER(c_int32)),
        ("num_warm", POINTER(c_int32)),
        ("warm", POINTER(c_int32)),
    )


class NativeTrace(Structure):
    """Mirrors `Trace` of kernels/cpu/experts/policy/policy_replay.h."""

    _fields_ = (
        ("routes", c_void_p),
        ("sizes", c_void_p),
        ("starts", c_void_p),
        ("num_steps", c_int64),
        ("num_layers", c_int32),
        ("num_experts", c_int32),
        ("k", c_int32),
    )


class ExpertStates(NamedTuple):
    """Which experts are resident and pinned, and their uses; arrays are (layers, experts)."""

    resident: NDArray[np.bool_]
    pinned: NDArray[np.bool_]
    accesses: NDArray[np.int64]


class NativePolicy(NativeObject):
    """A native slot policy with the methods of `SlotPolicy`; `replay` processes a whole trace."""

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings
        self._library = policy_library()
        native = _native(settings)
        size = ctypes.sizeof(native)
        address = self._library.sharpi_policy_create(ctypes.byref(native), size)
        super().__init__(address, self._library.sharpi_policy_destroy, "slot policy")
        max_swaps = sum(settings.slots) + settings.num_layers * settings.experts_per_token + 1
        self._swaps = np.empty((max_swaps, 3), np.int32)
        self._out = int(self._swaps.ctypes.data), max_swaps

    def start(self) -> list[Swap]:
        """Returns the swaps before the first token, for experts to pin and those of `warm`."""
        return self._made(self._library.sharpi_policy_start(self.handle, *self._out))

    def use(self, layer: int, experts: Sequence[int] | NDArray[np.integer]) -> list[Swap]:
        """Records a token's use of a layer's `experts`, best first; returns the swaps to make."""
        ids = np.ascontiguousarray(experts, np.int32)
        arguments = (self.handle, layer, ids.ctypes.data, len(ids))
        return self._made(self._library.sharpi_policy_use(*arguments, *self._out))

    def use_batch(self, layer: int, routes: NDArray[np.integer]) -> list[Swap]:
        """Records a batch's use of experts, `routes` (tokens, k); returns the swaps to make."""
        ids = np.ascontiguousarray(routes, np.int32)
        arguments = (self.handle, layer, ids.ctypes.data, *ids.shape)
        return self._made(self._library.sharpi_policy_use_batch(*arguments, *self._out))

    def resize(self, layer: int, num_slots: int) -> list[Swap]:
        """Gives a layer this many slots, or more if in use; returns a swap for each that goes."""
        arguments = (self.handle, layer, num_slots)
        return self._made(self._library.sharpi_policy_resize(*arguments, *self._out))

    def end_token(self) -> list[Swap]:
        """Ends a token or batch after its last layer; returns the swaps to make at this point."""
        return self._made(self._library.sharpi_policy_end_token(self.handle, *self._out))

    def reset_sequence(self) -> None:
        """Prepares for a new, unrelated text: the policy forgets the previous token."""
        self._library.sharpi_policy_reset_sequence(self.handle)

    def set_prefetching(self, prefetches: bool) -> None:
        """Allows or forbids loads of experts that were not missed; call it between steps."""
        self._library.sharpi_policy_set_prefetching(self.handle, prefetches)

    def set_learning(self, learns: bool) -> None:
        """Turns learning on or off between steps; without it, learned policies act as lru."""
        self._library.sharpi_policy_set_learning(self.handle, learns)

    def replay(self, steps: Steps) -> int:
        """Runs the policy over all steps of a trace; returns the number of swaps."""
        trace = native_trace(steps, self.settings.num_experts)
        made = int(self._library.sharpi_policy_replay(self.handle, ctypes.byref(trace)))
        if made < 0:
            raise MemoryError("no memory to replay the trace")
        return made

    def states(self) -> ExpertStates:
        """Returns which experts are resident and pinned, and how often each was used."""
        shape = (self.settings.num_layers, self.settings.num_experts)
        resident, pinned = np.empty(shape, np.bool_), np.empty(shape, np.bool_)
        accesses = np.empty(shape, np.int64)
        addresses = (resident.ctypes.data, pinned.ctypes.data, accesses.ctypes.data)
        self._library.sharpi_policy_experts(self.handle, *addresses)
        return ExpertStates(resident, pinned, accesses)

    def all_counts(self) -> list[Counts]:
        """Returns the counts of lookups, hits and loads, one for every layer."""
        return self._read_counts()[0]

    @property
    def before_pin(self) -> tuple[int, int] | None:
        """The accesses and hits before the most used experts were first pinned; None until then."""
        accesses, hits = self._read_counts()[1]
        return None if accesses < 0 else (accesses, hits)

    def _read_counts(self) -> tuple[list[Counts], tuple[int, int]]:
        counts = np.empty((self.settings.num_layers, len(Counts._fields)), np.int64)
        before = np.empty(2, np.int64)
        self._library.sharpi_policy_counts(self.handle, counts.ctypes.data, before.ctypes.data)
        return [Counts(*row) for row in counts.tolist()], (int(before[0]), int(before[1]))

    def _made(self, count: int) -> list[Swap]:
        assert count >= 0, "more swaps than a token can cause"
        return [Swap(*row) for row in self._swaps[:count].tolist()]


def native_trace(steps: Steps, num_experts: int) -> NativeTrace:
    """Returns a native struct that points to the steps' arrays, which have to outlive it."""
    arrays = steps.routes, steps.sizes, steps.starts
    assert all(array.flags.c_contiguous for array in arrays)
    tokens, num_layers, k = steps.routes.shape
    assert steps.sizes.sum() == tokens
    return NativeTrace(
        routes=steps.routes.ctypes.data,
        sizes=steps.sizes.ctypes.data,
        starts=steps.starts.ctypes.data,
        num_steps=len(steps.sizes),
        num_layers=num_layers,
        num_experts=num_experts,
        k=k,
    )


@cache
def policy_library() -> ctypes.CDLL:
    """Returns the native library with argument types set for the policies' functions."""
    library = load_library()
    structs = {"PolicyParams": NativeSettings, "Trace": NativeTrace}
    check_layouts(library, "sharpi_policy_layouts", structs)
    swaps = [c_void_p, c_int]
    signatures = {
        "sharpi_policy_create": (c_void_p, [POINTER(NativeSettings), c_size_t]),
        "sharpi_policy_destroy": (None, [c_void_p]),
        "sharpi_policy_start": (c_int, [c_void_p, *swaps]),
        "sharpi_policy_use": (c_int, [c_void_p, c_int, c_void_p, c_int, *swaps]),
        "sharpi_policy_use_batch": (c_int, [c_void_p, c_int, c_void_p, c_int, c_int, *swaps]),
        "sharpi_policy_exchange": (c_int, [c_void_p, c_int, c_int, c_int]),
        "sharpi_policy_resize": (c_int, [c_void_p, c_int, c_int, *swaps]),
        "sharpi_policy_end_token": (c_int, [c_void_p, *swaps]),
        "sharpi_policy_reset_sequence": (None, [c_void_p]),
        "sharpi_policy_set_prefetching": (None, [c_void_p, c_int]),
        "sharpi_policy_set_learning": (None, [c_void_p, c_int]),
        "sharpi_policy_experts": (None, [c_void_p, c_void_p, c_void_p, c_void_p]),
        "sharpi_policy_counts": (None, [c_void_p, c_void_p, c_void_p]),
        "sharpi_policy_replay": (c_int64, [c_void_p, POINTER(NativeTrace)]),
        "sharpi_optimum_replay": (c_int, [POINTER(NativeTrace), c_void_p, c_void_p]),
    }
    return declare(library, signatures)


def _native(settings: PolicySettings) -> NativeSettings:
    pins = [settings.pins(layer) for layer in range(settings.num_layers)]
    warm = settings.warm or ((),) * settings.num_layers
    return NativeSettings(
        kind=settings.kind,
        num_layers=settings.num_layers,
        num_experts=settings.num_experts,
        experts_per_token=settings.experts_per_token,
        admission=settings.admission,
        warm_pin=settings.warm_pin,
        warm_pin_after=settings.warm_pin_after,
        load_budget=settings.load_budget,
        moving_slots=settings.moving_slots,
        slots=_int32s(settings.slots),
        num_pinned=_int32s([len(ids) for ids in pins]),
        pinned=_int32s([expert for ids in pins for expert in ids]),
        num_warm=_int32s([len(ids) for ids in warm]),
        warm=_int32s([expert for ids in warm for expert in ids]),
    )


def _int32s(values: Sequence[int]) -> "ctypes.Array[c_int32]":
    return (c_int32 * max(1, len(values)))(*values)
