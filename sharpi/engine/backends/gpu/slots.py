"""The slots of experts on a GPU: their settings, and who fills them from RAM."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from sharpi.device.device import HostArray
from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.native.store import ExpertStore
from sharpi.experts.policy_choice import (
    DEFAULT_PREDICTOR,
    ExpertShape,
    choose_policy,
    choose_predictor,
    is_default,
    pin_note,
)
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.experts.profile import ExpertProfile
from sharpi.experts.trace.trace import Steps
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cuda.expert_slots.slot_memories import SlotSettings
from sharpi.ops.cuda.expert_slots.slot_state import FirstSlots
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers
from sharpi.ops.cuda.gpu_limits import raise_unsupported
from sharpi.ops.cuda.launchers.experts.slot_policy import MAX_EXPERTS, MAX_USED, PolicyRules
from sharpi.ops.cuda.recorded import MissMode
from sharpi.settings import ExpertConfig, RunConfig
from sharpi.tiers.expert_memory import NO_STASH, KvGrowth, StashPlan
from sharpi.tiers.plan import GpuPlace, TierPlan
from sharpi.trial import Trial


class GpuSlots(Struct, frozen=True):
    """The slots of a GPU without room for all experts, and how they are used."""

    settings: SlotSettings
    policy: PolicySettings
    modes: tuple[MissMode, ...]  # the candidates, of which the fastest is found while running
    expert_bytes: Mapping[int, int]  # bytes of one expert, by layer
    predicts: bool = False  # layers prefetch the next layer's experts, as long as that pays
    stash: StashPlan = NO_STASH  # for prompts
    notes: tuple[str, ...] = ()  # decisions that differ from the request
    why_no_pin: str | None = None  # the reason, if nothing is pinned
    growth: KvGrowth | None = None  # None unless the KV cache begins small and grows
    # The policy runs on the host; the GPU's kernels never change slots.
    is_filled_by_host: bool = False
    may_stop_filling: bool = False  # the host stops filling while that costs more than it saves


def gpu_slots(
    run: RunConfig,
    model: ModelConfig,
    plan: TierPlan,
    place: GpuPlace,
    profile: ExpertProfile | None,
    *,
    reads_ram: bool,
    can_use_cpu: bool,
) -> GpuSlots | None:
    """Decides about the slots of a GPU; returns None if it has all experts of its layers.

    `reads_ram`: the GPU can read experts from RAM. `can_use_cpu`: it can have the CPU compute them.
    Raises UsageError, and UnsupportedModelError for more experts than the slot kernels support.
    """
    config = run.experts
    slotted = tuple(index for index in plan.slotted_layers if index in place.layers)
    if not slotted:
        return None
    if model.num_experts > MAX_EXPERTS or model.num_experts_per_token > MAX_USED:
        raise_unsupported(
            f"slots of {model.num_experts} experts, {model.num_experts_per_token} of a token"
        )
    layers = plan.layers[: model.num_layers]  # an MTP head runs on the CPU
    slots = tuple(layer.vram_slots if layer.index in slotted else 0 for layer in layers)
    shape = ExpertShape(model.num_experts, model.num_experts_per_token, slots, on_gpu=True)
    policy, predictor = (
        choose_policy(config, shape, profile),
        choose_predictor(config, shape),
    )
    notes = tuple[str, ...]()
    if policy.kind.prefetches:
        policy = replace(policy, kind=PolicyKind.LEARNED_KEEP)
        notes = ("on a GPU learned-prefetch can only load missed experts: using learned-keep",)
    if config.miss in ("cpu", "stream") and reads_ram and _keeps_all_missed(policy):
        notes = (
            *notes,
            f"--moe-miss {config.miss} is for prompts only: {policy.kind.name.lower()} gives each"
            " expert that a decoded token misses a slot; learned-keep and static do not",
        )
    is_filled = not reads_ram and _changes(policy) and any(slots)
    if not reads_ram:
        policy = _begun(policy)
    kind = policy.kind if reads_ram else PolicyKind.STATIC
    predicts = predictor is not None and reads_ram and place.staging.num_early > 0
    if predicts and predictor != DEFAULT_PREDICTOR:
        notes = (*notes, f"on a GPU the predictor is {DEFAULT_PREDICTOR}, not {predictor}")
    rules = PolicyRules(
        kind, model.num_layers, model.num_experts, model.num_experts_per_token, policy.admission
    )
    settings = SlotSettings(
        rules=rules,
        first={index: _first(policy, index, slots[index], reads_ram) for index in slotted},
        num_staging=place.staging.num_missed,
        num_early=place.staging.num_early if predicts else 0,
        num_streamed=place.staging.num_streamed,
        reads_ram=reads_ram,
        computed=frozenset(index for index in slotted if index < run.num_cpu_moe),
    )
    sizes = {index: plan.layers[index].expert_bytes or 0 for index in slotted}
    reads = reads_ram and len(settings.computed) < len(slotted)
    modes = _modes(config, reads_ram=reads, can_use_cpu=can_use_cpu)
    return GpuSlots(
        settings, policy, modes, sizes, predicts, place.stash, notes, pin_note(config, policy),
        place.growth, is_filled, may_stop_filling=is_default(config, policy.kind),
    )  # fmt: skip


def _keeps_all_missed(policy: PolicySettings) -> bool:
    """Returns True if each missed expert takes a slot, so that it is loaded in any miss mode."""
    return not (policy.kind.is_learned or policy.kind is PolicyKind.STATIC or policy.admission)


def _changes(policy: PolicySettings) -> bool:
    """Returns True unless the policy keeps the set of experts that it begins with."""
    return policy.kind is not PolicyKind.STATIC or policy.warm_pin > 0


def _begun(policy: PolicySettings) -> PolicySettings:
    """Returns the policy with all slots filled at the start: by the profile, or with lowest ids."""
    all_experts = (tuple(range(policy.num_experts)),) * policy.num_layers
    if _changes(policy):
        return replace(policy, warm=policy.warm or all_experts)
    return replace(policy, pinned=policy.pinned or policy.warm or all_experts, warm=())


def _first(policy: PolicySettings, layer: int, num_slots: int, reads_ram: bool) -> FirstSlots:
    """Returns a layer's first experts; if not `reads_ram`, they never change during a step."""
    warm = policy.warm[layer] if policy.warm else ()
    first = FirstSlots(num_slots, policy.pins(layer), warm)
    return first if reads_ram else FirstSlots(num_slots, tuple(first.residents(policy.kind)))


def _modes(config: ExpertConfig, *, reads_ram: bool, can_use_cpu: bool) -> tuple[MissMode, ...]:
    """Returns the miss modes to choose from."""
    if not reads_ram:
        return ("cpu",)
    possible: tuple[MissMode, ...] = ("bus", "cpu") if can_use_cpu else ("bus",)
    return (config.miss,) if config.miss in possible else possible


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

    def pinned(self, number: int) -> tuple[int, ...]:
        """Returns the experts of a layer that are never evicted."""
        pins = self.policy.states().pinned[self._numbers.index(number)]
        return tuple(np.flatnonzero(pins).tolist())

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
        """Copies the experts `entering` that RAM has to VRAM, into slots free or of `leaving`."""
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
        """Returns copies of an evicted expert's gate, up and down; None if RAM has them."""
        store, moves = self._below, self._layers.moves
        if victim is None or store is None or store.stored(number, victim) is not None:
            return None
        pieces: list[HostArray] = [np.zeros(0, np.uint8)] * _NUM_PIECES
        for matrix, tensor in zip(moves.matrices(number), moves.stored(number, victim),
                                  strict=True):  # fmt: skip
            pieces[matrix] = tensor
        return pieces


def _entering(
    wanted: NDArray[np.bool_], held: NDArray[np.bool_], ids: IntArray, is_all_in_ram: bool
) -> list[int]:
    """Returns the experts to copy to VRAM, in order of ids."""
    missing = wanted & ~held
    if not is_all_in_ram:  # only a use brings an expert into RAM
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
