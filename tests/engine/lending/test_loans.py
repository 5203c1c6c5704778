"""Loans: which rank holds which of another rank's experts in memory."""

from hypothesis import given
from hypothesis import strategies as st

from sharpi.engine.lending.loan import Room, lend

SIZES = {0: (8, 100), 1: (4, 1000), 2: (16, 10)}
ALL_BYTES = sum(number * size for number, size in SIZES.values())
KERNELS = st.sampled_from(["avx512", "avx2"])
WISHES = st.sampled_from(["auto", "on", "off"])
LACKING = st.sampled_from([(), (0,), (1, 2), (0, 1, 2)])
ROOMS = st.lists(st.builds(Room, st.integers(0, ALL_BYTES), LACKING, KERNELS, WISHES), max_size=4)


@given(ROOMS)
def test_each_expert_has_one_lender_that_has_room_and_the_same_kernels(rooms: list[Room]) -> None:
    loans = lend(rooms, SIZES)
    lent = [(loan.owner, loan.layer, e) for loan in loans for e in range(loan.first, loan.end)]
    assert len(set(lent)) == len(lent)
    for rank, room in enumerate(rooms):
        own = [loan for loan in loans if loan.lender == rank]
        assert sum((loan.end - loan.first) * SIZES[loan.layer][1] for loan in own) <= room.spare
    for loan in loans:
        lender, owner = rooms[loan.lender], rooms[loan.owner]
        assert loan.layer in owner.lacking
        assert not lender.lacking
        assert lender.instruction_set == owner.instruction_set
        assert "off" not in (lender.wish, owner.wish)


def test_all_experts_are_lent_where_there_is_room() -> None:
    rooms = [Room(0, (0, 2), "avx2"), Room(10_000, (), "avx2")]
    assert [(loan.layer, loan.first, loan.end) for loan in lend(rooms, SIZES)] == [
        (0, 0, 8),
        (2, 0, 16),
    ]


def test_two_lenders_share_what_one_has_no_room_for() -> None:
    rooms = [Room(0, (1,), "avx2"), Room(1999, (), "avx2"), Room(9999, (), "avx2")]
    assert [(loan.lender, loan.first, loan.end) for loan in lend(rooms, SIZES)] == [
        (1, 3, 4),
        (2, 0, 3),
    ]


def test_nobody_is_asked_by_a_rank_that_has_room_for_its_own() -> None:
    assert lend([Room(0, (), "avx2"), Room(9999, (), "avx2")], SIZES) == ()
