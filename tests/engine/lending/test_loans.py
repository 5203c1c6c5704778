"""Loans: which rank holds which of another rank's experts in memory."""

from hypothesis import given
from hypothesis import strategies as st

from sharpi.engine.lending.loan import LendingOffer, lend

SIZES = {0: (8, 100), 1: (4, 1000), 2: (16, 10)}
ALL_BYTES = sum(number * size for number, size in SIZES.values())
KERNELS = st.sampled_from(["avx512", "avx2"])
MODES = st.sampled_from(["auto", "on", "off"])
LACKING = st.sampled_from([(), (0,), (1, 2), (0, 1, 2)])
OFFERS = st.lists(
    st.builds(LendingOffer, st.integers(0, ALL_BYTES), LACKING, KERNELS, MODES), max_size=4
)


@given(OFFERS)
def test_each_expert_has_one_lender_that_has_free_ram_and_the_same_kernels(
    offers: list[LendingOffer],
) -> None:
    loans = lend(offers, SIZES)
    lent = [(loan.owner, loan.layer, e) for loan in loans for e in range(loan.first, loan.end)]
    assert len(set(lent)) == len(lent)
    for rank, offer in enumerate(offers):
        own = [loan for loan in loans if loan.lender == rank]
        assert sum((loan.end - loan.first) * SIZES[loan.layer][1] for loan in own) <= offer.spare
    for loan in loans:
        lender, owner = offers[loan.lender], offers[loan.owner]
        assert loan.layer in owner.layers_with_misses
        assert not lender.layers_with_misses
        assert lender.instruction_set == owner.instruction_set
        assert "off" not in (lender.mode, owner.mode)


def test_all_experts_are_lent_where_ram_is_free() -> None:
    offers = [LendingOffer(0, (0, 2), "avx2"), LendingOffer(10_000, (), "avx2")]
    assert [(loan.layer, loan.first, loan.end) for loan in lend(offers, SIZES)] == [
        (0, 0, 8),
        (2, 0, 16),
    ]


def test_two_lenders_share_what_one_has_no_ram_for() -> None:
    offers = [
        LendingOffer(0, (1,), "avx2"),
        LendingOffer(1999, (), "avx2"),
        LendingOffer(9999, (), "avx2"),
    ]
    assert [(loan.lender, loan.first, loan.end) for loan in lend(offers, SIZES)] == [
        (1, 3, 4),
        (2, 0, 3),
    ]


def test_a_rank_with_all_its_experts_borrows_none() -> None:
    assert lend([LendingOffer(0, (), "avx2"), LendingOffer(9999, (), "avx2")], SIZES) == ()
