"""HostFilling: a slot policy on the host decides which experts are in VRAM, between steps.

It is for a GPU that cannot read experts from RAM, because RAM does not hold all of them, or because
the driver cannot page-lock them. During a step the CPU computes the experts that are not in VRAM.
After the step, experts that the policy wants are copied from RAM to VRAM. The experts evicted from
VRAM take the slots in RAM that the copied ones leave.
"""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from sharpi.device.device import HostArray
from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.native.store import ExpertStore
from sharpi.experts.policy_settings import PolicySettings
from sharpi.experts.trace.trace_steps import Steps
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers
from sharpi.trial import Trial

_NUM_PIECES = 3


class HostFilling:
    """Fills the VRAM slots of `layers` with the experts that a policy on the host wants.

    `settings` covers all layers of the model. `below` has the slots in RAM; None if RAM holds all
    experts. With `may_stop`, tokens are timed, and experts stop moving while moving them costs more
    time than it saves.
    """

    def __init__(
        self,
        settings: PolicySettings,
        layers: SlottedLayers,
        below: ExpertStore | None,
        *,
        may_stop: bool,
    ) -> None:
        self._layers, self._below = layers, below
        self._numbers = layers.numbers
        self.policy = NativePolicy(_of_layers(settings, self._numbers))
        self.policy.start()
        self.trial = Trial((True, False), default=True) if may_stop else None
        self.num_moved = dict.fromkeys(self._numbers, 0)

    @property
    def moves_now(self) -> bool:
        """True if experts move after the next token."""
        return self.trial is None or self.trial.choice

    @property
    def has_pinned(self) -> bool:
        """True once the policy has pinned the most used experts."""
        return self.policy.before_pin is not None

    def pinned(self, number: int) -> tuple[int, ...]:
        """Returns the experts of a layer that are never evicted."""
        pins = self.policy.states().pinned[self._numbers.index(number)]
        return tuple(np.flatnonzero(pins).tolist())

    def reset_sequence(self) -> None:
        """Tells the policy that a new, unrelated text begins."""
        self.policy.reset_sequence()

    def end_step(self, routes: Sequence[IntArray], *, is_prompt: bool) -> None:
        """Updates the policy with a step's routes, (rows, used) by layer, and moves experts."""
        if is_prompt:
            for place, ids in enumerate(routes):
                if len(ids):
                    self.policy.use_batch(place, ids)
            self.policy.end_token()
        else:
            together = np.ascontiguousarray(np.stack(routes, axis=1), np.int32)
            count = len(together)
            steps = Steps(together, np.ones(count, np.int64), np.zeros(count, np.bool_))
            self.policy.replay(steps)
        if self.moves_now:
            self._move(routes)

    def _move(self, routes: Sequence[IntArray]) -> None:
        wanted = self.policy.states().resident
        for place, (number, ids) in enumerate(zip(self._numbers, routes, strict=True)):
            held = np.zeros(wanted.shape[1], np.bool_)
            held[list(self._layers.moves.residents(number))] = True
            self._move_in_layer(number, _entering(wanted[place], held, ids, self._below is None),
                                np.flatnonzero(held & ~wanted[place]).tolist())  # fmt: skip
        self._layers.moves.upload_residents()

    def _move_in_layer(self, number: int, entering: Sequence[int], leaving: list[int]) -> None:
        """Copies the experts `entering` to VRAM, into free slots or those of the experts `leaving`.

        Stops when no slot is left, and skips experts that are not in RAM.
        """
        moves = self._layers.moves
        for expert in entering:
            if not leaving and not moves.has_free(number):
                return
            tensors = self._bytes_of(number, expert)
            if tensors is None:
                continue
            victim = None if moves.has_free(number) else leaving.pop()
            given_back = self._copied_from_vram(number, victim)
            moves.move_in(number, expert, victim, tensors)
            if victim is not None and given_back is not None and self._below is not None:
                self._below.exchange(number, expert, victim, given_back)
            self.num_moved[number] += 1

    def _bytes_of(self, number: int, expert: int) -> Sequence[HostArray] | None:
        if self._below is None:
            return self._layers.moves.mapped(number, expert)
        pieces = self._below.stored(number, expert)
        if pieces is None:
            return None
        return [pieces[matrix] for matrix in self._layers.moves.matrices(number)]

    def _copied_from_vram(self, number: int, victim: int | None) -> list[HostArray] | None:
        """Returns copies of an evicted expert's gate, up and down; None if RAM has them.

        None, too, if no expert is evicted.
        """
        store, moves = self._below, self._layers.moves
        if victim is None or store is None or store.stored(number, victim) is not None:
            return None
        pieces: list[HostArray] = [np.zeros(0, np.uint8)] * _NUM_PIECES
        for matrix, tensor in zip(moves.matrices(number), moves.stored(number, victim),
                                  strict=True):  # fmt: skip
            pieces[matrix] = tensor
        return pieces

    def close(self) -> None:
        """Frees the policy; a second call does nothing."""
        self.policy.close()


def _entering(
    wanted: NDArray[np.bool_], held: NDArray[np.bool_], ids: IntArray, is_all_in_ram: bool
) -> list[int]:
    """Returns the experts to copy to VRAM, in order of ids.

    Unless RAM holds all experts, only those used in this step are candidates, because only a use
    brings an expert into RAM.
    """
    missing = wanted & ~held
    if not is_all_in_ram:
        used = np.zeros(len(wanted), np.bool_)
        used[ids.ravel()] = True
        missing &= used
    entering: list[int] = np.flatnonzero(missing).tolist()
    return entering


def _of_layers(settings: PolicySettings, numbers: Sequence[int]) -> PolicySettings:
    """Returns the settings restricted to these layers."""
    return replace(
        settings,
        slots=tuple(settings.slots[number] for number in numbers),
        pinned=tuple(settings.pinned[number] for number in numbers) if settings.pinned else (),
        warm=tuple(settings.warm[number] for number in numbers) if settings.warm else (),
    )
