"""Decides which rank lends which experts; all ranks derive the same loans from the same data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

Wish = Literal["auto", "on", "off"]


class Room(Struct, frozen=True):
    """A rank's spare RAM and missing experts, published after it has planned its layers."""

    spare: int  # bytes of RAM that its own layers leave free
    lacking: tuple[int, ...]  # its layers with experts that have no slot
    instruction_set: str  # of its kernels: other kernels round differently
    wish: Wish = "auto"
    absent: frozenset[int] = frozenset()  # layers with tensors in a missing part of the model


class Loan(Struct, frozen=True):
    """Experts [first, end) of a layer that rank `owner` runs, in the memory of rank `lender`."""

    lender: int
    owner: int
    layer: int
    first: int
    end: int


def lend(rooms: Sequence[Room], experts: Mapping[int, tuple[int, int]]) -> tuple[Loan, ...]:
    """Returns all loans; `experts`: by layer, the number of experts and the bytes of one.

    A rank lends the same fraction of each layer's experts, beginning with the highest ids, as far
    as its spare RAM goes. Experts without a lender stay on disk.
    """
    loans: list[Loan] = []
    spare = [room.spare if room.wish != "off" else 0 for room in rooms]
    for owner, room in enumerate(rooms):
        if room.wish == "off" or not room.lacking:
            continue
        all_ends = {layer: experts[layer][0] for layer in room.lacking}
        for lender, other in enumerate(rooms):
            if lender == owner or other.lacking or other.instruction_set != room.instruction_set:
                continue
            ends = {layer: end for layer, end in all_ends.items() if layer not in other.absent}
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
