"""Decides which rank lends which experts; all ranks derive the same loans from the same data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

LendingMode = Literal["auto", "on", "off"]


class LendingOffer(Struct, frozen=True):
    """A rank's spare RAM and missing experts, published after it has planned its layers."""

    spare: int  # bytes of RAM that its own layers leave free
    layers_with_misses: tuple[int, ...]  # its layers with experts that have no slot
    instruction_set: str  # of its kernels: other kernels round differently
    mode: LendingMode = "auto"
    missing_layers: frozenset[int] = frozenset()  # layers with tensors in a missing file


class Loan(Struct, frozen=True):
    """Experts [first, end) of a layer that rank `owner` runs, in the memory of rank `lender`."""

    lender: int
    owner: int
    layer: int
    first: int
    end: int


def lend(
    offers: Sequence[LendingOffer], experts: Mapping[int, tuple[int, int]]
) -> tuple[Loan, ...]:
    """Returns all loans; `experts`: by layer, the number of experts and the bytes of one.

    A rank lends the same fraction of each layer's experts, beginning with the highest ids, as far
    as its spare RAM goes. Experts without a lender stay on disk.
    """
    loans: list[Loan] = []
    spare = [offer.spare if offer.mode != "off" else 0 for offer in offers]
    for owner, offer in enumerate(offers):
        if offer.mode == "off" or not offer.layers_with_misses:
            continue
        all_ends = {layer: experts[layer][0] for layer in offer.layers_with_misses}
        for lender, other in enumerate(offers):
            if lender == owner or other.layers_with_misses:
                continue
            if other.instruction_set != offer.instruction_set:
                continue
            ends = {
                layer: end for layer, end in all_ends.items() if layer not in other.missing_layers
            }
            for loan in _loans(lender, owner, ends, experts, spare[lender]):
                spare[lender] -= (loan.end - loan.first) * experts[loan.layer][1]
                all_ends[loan.layer] = loan.first
                loans.append(loan)
    return tuple(loans)


def share_text(loans: Sequence[Loan], experts: Mapping[int, tuple[int, int]]) -> str:
    """Returns how many experts are lent, out of all experts in the same layers, as text."""
    num_lent = sum(loan.end - loan.first for loan in loans)
    num_all = sum(experts[layer][0] for layer in {loan.layer for loan in loans})
    return f"{num_lent} of {num_all} experts in layers without a slot for each"


def _loans(
    lender: int,
    owner: int,
    ends: Mapping[int, int],
    experts: Mapping[int, tuple[int, int]],
    spare: int,
) -> Iterator[Loan]:
    """Yields one rank's loans to another.

    `ends`: experts [0, end) of each layer have no lender yet. `spare` is the lender's spare RAM in
    bytes.
    """
    wanted = sum(end * experts[layer][1] for layer, end in ends.items())
    share = min(1.0, max(0, spare) / wanted) if wanted else 0.0
    for layer, end in dict(ends).items():
        if count := int(end * share):
            yield Loan(lender, owner, layer, end - count, end)
