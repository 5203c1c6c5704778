"""Plans as tables: a model of four layers, 5 MiB of dense weights and 8 experts of 3 MiB each.

Also their lines about slots, the VRAM that they may use, and the settings that all ranks share.
"""

import pytest
from msgspec.structs import replace
from tier_cases import CONFIG, GIB, MACHINE, MIB, SETTINGS, model, moe_layer, plan_of

from sharpi.errors import UsageError
from sharpi.settings import Device, KvTypes
from sharpi.tiers.facts import LayerFacts
from sharpi.tiers.gpu import RESERVE_BYTES
from sharpi.tiers.notes import slot_notes
from sharpi.tiers.plan import Purpose, SlotStatus, Tier, TierPlan
from sharpi.tiers.planner import MAPPED_MARGIN
from sharpi.tiers.settings import usable_vrams

DENSE_WEIGHTS = 4 * 5 * MIB + 4 * MIB
EMBEDDING = 4 * MIB
KV = 4 * 4 * 64 * 1024  # four layers of four pages
SLOT = 3 * MIB + 4096
STAGING = 4 * SLOT  # a token's two experts, and two more


def planned(*layers: LayerFacts, used: int = 2, **asked: object) -> TierPlan:
    return plan_of(model(*layers, used=used), **asked)


def scratch(**asked: object) -> int:
    return planned(**asked).bytes_in(Tier.RAM, Purpose.SCRATCH)


def room(num_slots: int) -> int:
    """Returns the RAM for everything but the experts, and for `num_slots` slots."""
    return DENSE_WEIGHTS + EMBEDDING + KV + scratch() + STAGING + num_slots * SLOT


def test_keys_that_a_head_copies_from_a_gpu_take_the_room_of_slots() -> None:
    """A layer on the CPU needs no copies of its keys."""
    page = 3 * SLOT // 4  # so that four pages take three slots
    head = LayerFacts(dense_weights_bytes=5 * MIB, kv_page_bytes=0)
    facts = replace(model(), layers=(*model().layers, head), has_head=True)
    found = []
    for read in ({}, {0: page}, {3: page}):
        plan = plan_of(replace(facts, read_by_head=read), ram=room(10), vram=4 * GIB, gpu_layers=1)
        assert plan.layers[-1].kv_bytes == (4 * page if 3 in read else 0)
        found.append((sum(x.ram_slots for x in plan.layers), plan.bytes_in(Tier.RAM, Purpose.KV)))
    assert found[0] == found[1]
    assert found[2] == (found[0][0] - 3, found[0][1] + 4 * page)


class TestRam:
    def test_what_fits_is_mapped(self) -> None:
        plan = planned()
        assert plan.is_mapped
        assert plan.fits
        assert plan.status is SlotStatus.OK
        assert plan.ratio == 1.0
        assert plan.ram_slots == (0, 0, 0, 0)
        assert plan.num_staging == 0
        assert plan.bytes_in(Tier.RAM, Purpose.DENSE_WEIGHTS) == DENSE_WEIGHTS + EMBEDDING
        assert plan.bytes_in(Tier.RAM, Purpose.KV) == KV
        assert plan.bytes_in(Tier.RAM, Purpose.EXPERTS) == 4 * 8 * 3 * MIB
        assert plan.bytes_in(Tier.DISK) == 0
        assert [layer.reason for layer in plan.layers] == ["all 8 experts fit in RAM"] * 4

    def test_default_budget_is_what_is_free_less_a_margin(self) -> None:
        assert planned().ram_budget == 12 * GIB - 16 * GIB // 32
        small = replace(MACHINE, free_ram=GIB, ram_limit=2 * GIB)
        assert plan_of(model(), small).ram_budget == GIB - 96 * MIB

    @pytest.mark.parametrize(
        ("num_slots", "by_layer", "status", "ratio"),
        [
            (0, (0, 0, 0, 0), SlotStatus.BUDGET_EXHAUSTED, 0.0),
            (3, (1, 1, 1, 0), SlotStatus.BUDGET_EXHAUSTED, 0.0),
            (4, (1, 1, 1, 1), SlotStatus.BELOW_RECOMMENDED, 0.25),
            (13, (4, 3, 3, 3), SlotStatus.BELOW_RECOMMENDED, 0.75),
            (16, (4, 4, 4, 4), SlotStatus.OK, 1.0),
            (26, (7, 7, 6, 6), SlotStatus.OK, 1.0),
        ],
    )
    def test_slots_of_a_budget(
        self, num_slots: int, by_layer: tuple[int, ...], status: SlotStatus, ratio: float
    ) -> None:
        plan = planned(ram=room(num_slots))
        assert plan.ram_slots == by_layer
        assert (plan.status, plan.ratio) == (status, ratio)
        assert plan.bytes_in(Tier.RAM, Purpose.STAGING) == STAGING
        assert plan.bytes_in(Tier.RAM, Purpose.SLOTS) == num_slots * SLOT
        assert plan.bytes_in(Tier.RAM) == plan.ram_budget
        assert plan.bytes_in(Tier.DISK) == 4 * 8 * 3 * MIB
        assert planned(ram=room(num_slots) - 1).ram_slots != by_layer or num_slots == 0

    @pytest.mark.parametrize(("num_slots", "further"), [(15, 0), (16, 2)])
    def test_checks_of_drafts_have_more_buffers_where_there_is_room(
        self, num_slots: int, further: int
    ) -> None:
        ram = room(num_slots) - STAGING + 2 * SLOT  # one expert of a token, and one more
        ram += scratch(max_drafts=1) - scratch()
        plan = planned(ram=ram, used=1, max_drafts=1)
        assert plan.num_staging == 2 + further
        assert plan.bytes_in(Tier.RAM, Purpose.STAGING) == (2 + further) * SLOT
        assert sum(plan.ram_slots) == num_slots - further

    def test_fewer_slots_than_a_token_uses_are_said(self) -> None:
        plan = planned(ram=room(4))
        assert any("room for 1 of the 2 experts that a token uses" in note for note in plan.notes)
        assert "take turns" in plan.layers[0].reason
        assert not any("take turns" in note for note in planned(ram=room(8)).notes)

    def test_what_cannot_fit_says_how_much_is_missing(self) -> None:
        plan = planned(ram=room(0) - 3 * MIB)
        assert (plan.fits, plan.shortfall) == (False, 3 * MIB)
        assert plan.notes[0].startswith("does not fit: 3.0 MiB of RAM are missing; raise --ram")
        with pytest.raises(UsageError, match=r"needs at least .* of RAM, 3\.0 MiB more .*--ram"):
            plan.require_fit()
        planned(ram=room(0)).require_fit()
        unasked = planned(free_ram=room(0) - 3 * MIB)
        assert not unasked.fits
        assert unasked.notes[0].startswith("the model needs ")

    def test_what_a_policy_learns_takes_room_from_slots(self) -> None:
        usual, least = MIB // 2, 4096
        plan = planned(ram=room(26), learned_bytes=usual, least_learned_bytes=least)
        assert plan.bytes_in(Tier.RAM, Purpose.LEARNED) == 4 * usual
        assert plan.bytes_in(Tier.RAM, Purpose.SLOTS) == 25 * SLOT
        assert plan.bytes_in(Tier.RAM) <= plan.ram_budget
        assert not plan.uses_small_maps

    def test_the_policy_with_small_maps_takes_over_where_ram_is_short(self) -> None:
        sizes = {"learned_bytes": MIB // 2, "least_learned_bytes": 1024}
        plan = planned(ram=room(4), **sizes)
        assert plan.uses_small_maps
        assert plan.bytes_in(Tier.RAM, Purpose.LEARNED) == 4 * 1024
        assert any("learned-keep decides about slots" in note for note in plan.notes)
        named = planned(ram=room(4), learned_bytes=MIB // 2, least_learned_bytes=MIB // 2)
        assert not named.uses_small_maps, "the user named the policy"
        assert not planned(**sizes).bytes_in(Tier.RAM, Purpose.LEARNED), "all experts are in RAM"

    def test_slots_differ_in_size_from_layer_to_layer(self) -> None:
        plan = planned(moe_layer(3 * MIB), moe_layer(6 * MIB), ram=90 * MIB)
        assert [layer.slot_bytes for layer in plan.layers] == [3 * MIB + 4096, 6 * MIB + 4096]
        assert plan.bytes_in(Tier.RAM, Purpose.STAGING) == 4 * (6 * MIB + 4096)

    def test_never_more_recommended_than_there_are(self) -> None:
        assert planned(used=8).layers[0].recommended_slots == 8

    def test_more_ram_than_is_free_is_said(self) -> None:
        assert planned(ram=13 * GIB).notes == ("only 12.0 GiB of RAM is free now",)
        running = planned(ram=13 * GIB, limits_ram=True)
        assert running.ram_budget == 12 * GIB - 16 * GIB // 32
        assert planned(ram=GIB, limits_ram=True).ram_budget == GIB

    def test_a_model_that_the_page_cache_can_hold_needs_no_slots(self) -> None:
        needed = planned().bytes_in(Tier.RAM)

        def with_free(free: int, **asked: object) -> TierPlan:
            return plan_of(model(), replace(MACHINE, free_ram=free), **asked)

        closely = with_free(needed + MAPPED_MARGIN)
        assert closely.is_mapped
        assert closely.fits
        assert not with_free(needed + MAPPED_MARGIN - 1).is_mapped
        assert not with_free(needed + MAPPED_MARGIN, ram=needed - 1).is_mapped
        assert not with_free(needed + MAPPED_MARGIN, moe_slots=3).is_mapped


class TestAskedSlots:
    def test_are_made_although_the_model_fits(self) -> None:
        plan = planned(moe_slots=3)
        assert not plan.is_mapped
        assert plan.ram_slots == (3, 3, 3, 3)
        assert plan.status is SlotStatus.BELOW_RECOMMENDED

    def test_are_never_more_than_experts(self) -> None:
        plan = planned(moe_slots=100)
        assert plan.ram_slots == (8, 8, 8, 8)
        assert plan.notes == ()

    def test_are_cut_to_the_budget_and_it_says_so(self) -> None:
        plan = planned(moe_slots=6, ram=room(13))
        assert plan.ram_slots == (4, 3, 3, 3)
        assert "6 slots per layer were requested, 3 to 4 fit" in plan.notes

    def test_are_the_gpus_where_it_has_room(self) -> None:
        plan = planned(moe_slots=3, vram=2 * GIB)
        assert plan.vram_slots == (3, 3, 3, 3)
        assert plan.is_mapped


class TestGpu:
    def test_all_on_the_gpu(self) -> None:
        plan = planned(vram=2 * GIB)
        assert {layer.dense_weights for layer in plan.layers} == {Tier.VRAM}
        assert {layer.experts for layer in plan.layers} == {Tier.VRAM}
        assert plan.vram_slots == (8, 8, 8, 8)
        assert plan.bytes_in(Tier.VRAM, Purpose.DENSE_WEIGHTS) == DENSE_WEIGHTS + 4 * MIB
        assert plan.bytes_in(Tier.RAM, Purpose.DENSE_WEIGHTS) == 0
        assert [place.embeds for place in plan.gpus] == [True]
        assert plan.gpus[0].num_bytes == plan.bytes_in(Tier.VRAM)

    def test_the_embedding_takes_room_that_is_left_over(self) -> None:
        """The embedding takes room only after all experts have theirs."""
        whole = planned(vram=2 * GIB).bytes_in(Tier.VRAM)
        plan = planned(vram=whole - 1)
        assert plan.vram_slots == (8, 8, 8, 8)
        assert not plan.gpus[0].embeds
        assert plan.bytes_in(Tier.RAM, Purpose.DENSE_WEIGHTS) == 4 * MIB
        assert not planned(vram=2 * GIB, gpu_layers=3).gpus[0].embeds
        assert plan.bytes_in(Tier.VRAM, Purpose.KV) == KV
        assert plan.bytes_in(Tier.RAM, Purpose.DENSE_WEIGHTS) == EMBEDDING
        assert plan.bytes_in(Tier.RAM, Purpose.EXPERTS) == 0

    def test_slots_take_what_the_dense_weights_leave(self) -> None:
        vram = RESERVE_BYTES + scratch() + DENSE_WEIGHTS + KV + STAGING + 9 * SLOT
        plan = planned(vram=vram)
        assert plan.vram_slots == (3, 2, 2, 2)
        assert plan.bytes_in(Tier.VRAM) == vram
        assert {layer.experts for layer in plan.layers} == {Tier.RAM}
        assert plan.bytes_in(Tier.RAM, Purpose.EXPERTS) == 4 * 8 * 3 * MIB
        assert plan.status is SlotStatus.BELOW_RECOMMENDED

    def test_layers_stay_behind_only_when_dense_weights_do_not_fit(self) -> None:
        vram = RESERVE_BYTES + scratch() + DENSE_WEIGHTS + KV - 1
        plan = planned(vram=vram)
        assert [layer.dense_weights for layer in plan.layers] == [
            Tier.RAM,
            Tier.VRAM,
            Tier.VRAM,
            Tier.VRAM,
        ]
        assert plan.vram_slots == (0, 0, 0, 0)
        assert plan.notes == ("1 of 4 layers stay on the CPU: they do not fit in VRAM",)

    def test_a_gpu_too_small_for_anything_is_left_alone(self) -> None:
        plan = planned(vram=100 * MIB)
        assert plan.bytes_in(Tier.VRAM) == 0
        assert plan.is_mapped

    def test_layers_that_were_asked_for(self) -> None:
        plan = planned(vram=2 * GIB, gpu_layers=1)
        assert [layer.dense_weights for layer in plan.layers] == [
            Tier.RAM,
            Tier.RAM,
            Tier.RAM,
            Tier.VRAM,
        ]
        assert plan.vram_slots == (0, 0, 0, 8)
        assert planned(vram=2 * GIB, gpu_layers=0).bytes_in(Tier.VRAM) == 0
        assert planned(vram=2 * GIB, gpu_layers=99).vram_slots == (8, 8, 8, 8)

    def test_layers_that_were_asked_for_take_their_experts_along(self) -> None:
        whole = planned(vram=2 * GIB, gpu_layers=2).bytes_in(Tier.VRAM)
        plan = planned(vram=whole - 1, gpu_layers=2)
        assert plan.vram_slots == (0, 0, 0, 8)
        assert plan.notes == ("1 of 2 layers stay on the CPU: they do not fit in VRAM",)
        assert planned(vram=whole, gpu_layers=2).vram_slots == (0, 0, 8, 8)

    def test_a_layer_is_where_the_keys_that_it_reads_are(self) -> None:
        reads_earlier = replace(moe_layer(), kv_layer=1)
        layers = (moe_layer(), moe_layer(), reads_earlier, moe_layer())
        for count, on_gpu in ((4, 4), (3, 3), (2, 1), (1, 1)):
            plan = planned(*layers, vram=2 * GIB, gpu_layers=count)
            assert sum(layer.dense_weights is Tier.VRAM for layer in plan.layers) == on_gpu

    def test_experts_that_were_kept_off_the_gpu(self) -> None:
        assert planned(vram=2 * GIB, cpu_moe=True).vram_slots == (0, 0, 0, 0)
        assert planned(vram=2 * GIB, num_cpu_moe=3).vram_slots == (0, 0, 0, 8)

    def test_three_tiers(self) -> None:
        """The GPU gets no staging buffers, because they could not be filled from RAM."""
        vram = RESERVE_BYTES + scratch() + DENSE_WEIGHTS + KV + 4 * SLOT
        ram = EMBEDDING + scratch() + STAGING + 12 * SLOT
        plan = planned(vram=vram, ram=ram)
        assert (plan.vram_slots, plan.ram_slots) == ((1, 1, 1, 1), (3, 3, 3, 3))
        assert plan.bytes_in(Tier.VRAM, Purpose.STAGING) == 0
        assert {layer.experts for layer in plan.layers} == {Tier.DISK}
        assert {layer.num_resident for layer in plan.layers} == {4}
        assert plan.layers[0].reason == "1 on the GPU, 3 in slots in RAM, the others on disk"

    def test_ram_has_no_slots_for_what_the_gpu_has(self) -> None:
        ram = EMBEDDING + scratch() + STAGING + 4 * SLOT
        plan = planned(vram=2 * GIB, moe_slots=7, ram=ram)
        assert (plan.vram_slots, plan.ram_slots) == ((7, 7, 7, 7), (1, 1, 1, 1))
        assert plan.layers[0].reason == (
            "7 on the GPU, the other 1 have a slot in RAM, read from disk once"
        )
        assert not any("groups" in note for note in plan.notes)

    def test_layers_whose_experts_the_cpu_computes_say_so(self) -> None:
        plan = planned(vram=2 * GIB, num_cpu_moe=3)
        reasons = [layer.reason for layer in plan.layers]
        assert reasons[:3] == ["kept off the GPU: the CPU computes all 8 experts"] * 3
        assert reasons[3] == "all 8 experts fit in VRAM"
        host = next(line for line in plan.lines if line.purpose is Purpose.EXPERTS)
        assert "no copy" in host.reason


class TestStatus:
    def test_dense_model_is_empty(self) -> None:
        plan = planned(LayerFacts(5 * MIB, 1024), LayerFacts(5 * MIB, 1024))
        assert plan.status is SlotStatus.EMPTY
        assert plan.is_mapped
        assert plan.ratio == 1.0
        assert plan.layers[0].experts is None

    def test_dense_model_that_does_not_fit(self) -> None:
        plan = planned(LayerFacts(50 * MIB, 1024), ram=40 * MIB)
        assert not plan.fits

    def test_dense_layers_do_not_spoil_the_status(self) -> None:
        assert planned(LayerFacts(5 * MIB, 1024), moe_layer()).status is SlotStatus.OK

    def test_experts_of_unknown_size_get_no_slots(self) -> None:
        plan = planned(LayerFacts(5 * MIB, 1024, 8, None), moe_layer(), moe_slots=2)
        assert plan.status is SlotStatus.UNKNOWN_EXPERT_SIZE
        assert plan.ram_slots == (0, 2)
        assert "do not show the size" in plan.layers[0].reason


@pytest.mark.parametrize(
    ("device", "vram", "free", "expected"),
    [
        ("auto", None, 10 * GIB, (10 * GIB,)),
        ("auto", GIB, 10 * GIB, (GIB,)),
        ("auto", 20 * GIB, 10 * GIB, (10 * GIB,)),
        ("cuda", GIB, 10 * GIB, (GIB,)),
        ("cpu", GIB, 10 * GIB, ()),
        ("auto", GIB, 0, (GIB,)),  # a GPU that is not there may be planned for
        ("auto", None, 0, ()),
    ],
)
def test_memory_of_the_gpu(
    device: Device, vram: int | None, free: int, expected: tuple[int, ...]
) -> None:
    config = replace(CONFIG, device=device, vram=vram)
    assert usable_vrams(config, replace(MACHINE, free_vram=free)) == expected


def test_several_gpus_have_limits_of_their_own() -> None:
    named = replace(CONFIG, gpus=(0, 1), vrams=(GIB, 3 * GIB))
    assert usable_vrams(named, replace(MACHINE, free_vrams=(2 * GIB, 2 * GIB))) == (GIB, 2 * GIB)
    assert usable_vrams(named, MACHINE) == (GIB, 3 * GIB)


def test_ranks_share_what_decides_results_and_keep_what_is_of_their_machine() -> None:
    first = replace(
        SETTINGS, context_size=999, rounding="int16", kv_types=KvTypes("q8_0", "q4_0"),
        max_drafts=3, num_threads=64, instruction_set="avx512_vnni", kv_keep=7,
    )  # fmt: skip
    assert SETTINGS.of_first_rank(first) == replace(
        first, num_threads=1, instruction_set="avx2", kv_keep=0
    )


def plan(**wishes: object) -> TierPlan:
    return plan_of(model(), **wishes)


def test_a_model_that_is_mapped_has_none() -> None:
    assert list(slot_notes(plan())) == []


def test_enough_slots_in_ram() -> None:
    (line,) = slot_notes(plan(moe_slots=5))
    assert line.startswith("5 of a layer's 8 experts have a slot in RAM, the others are read from")
    assert line.endswith("; 4 or more are recommended)")


def test_too_few_slots_in_ram() -> None:
    (line,) = slot_notes(plan(moe_slots=2), is_limited=True)
    assert line.endswith("; 4 are recommended: raise --moe-slots)")
    (line,) = slot_notes(plan(ram=70 * MIB))
    assert line.endswith("; 4 are recommended: raise --ram or lower -c)")


def test_slots_on_a_gpu() -> None:
    few = plan(vram=RESERVE_BYTES + 75 * MIB)
    assert set(few.vram_slots) == {2, 3}
    (line,) = slot_notes(few)
    assert line.startswith("2 to 3 of a layer's 8 experts have a slot in VRAM, the others are in")
    assert "; 4 are recommended: raise --vram" in line


def test_no_room_for_slots_on_a_gpu() -> None:
    (line,) = slot_notes(plan(vram=RESERVE_BYTES + 30 * MIB))
    assert line.startswith("0 of a layer's 8 experts have a slot in VRAM")
    assert "; 4 are recommended: raise --vram" in line


def test_all_experts_on_a_gpu() -> None:
    (line,) = slot_notes(plan(vram=GIB))
    assert line.startswith("all 8 experts of each layer have a slot in VRAM (")
    assert line.endswith("; 4 or more are recommended)")


def test_slots_on_a_gpu_and_in_ram() -> None:
    vram, ram = slot_notes(plan(vram=RESERVE_BYTES + 60 * MIB, ram=60 * MIB))
    assert "a slot in VRAM, the others are in RAM or on disk" in vram
    assert "recommended" in vram
    assert "a slot in RAM, the others are read from disk" in ram
    assert "recommended" not in ram


def test_experts_kept_off_the_gpu_have_none() -> None:
    assert list(slot_notes(plan(vram=GIB, cpu_moe=True))) == []
