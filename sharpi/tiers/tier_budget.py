"""TierBudget: the memory budget of one tier, and a list of the allocations that use it."""

from sharpi.tiers.plan import PlanLine, Purpose, Tier


class TierBudget:
    """The budget of one tier in bytes; `left` is negative if allocations exceed it."""

    def __init__(self, tier: Tier, budget: int) -> None:
        self.tier, self.budget = tier, budget
        self.left = budget
        self.lines: list[PlanLine] = []

    @property
    def taken(self) -> int:
        """The bytes allocated so far."""
        return self.budget - self.left

    def take(self, purpose: Purpose, num_bytes: int, reason: str) -> None:
        """Subtracts bytes from the budget, and adds a line to `lines` unless they are 0."""
        if num_bytes:
            self.left -= num_bytes
            self.lines.append(PlanLine(self.tier, purpose, num_bytes, reason))
