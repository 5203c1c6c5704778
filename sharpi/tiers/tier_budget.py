"""TierBudget: one tier's budget, and the parts of it that are taken, line by line."""

from sharpi.tiers.plan import PlanLine, Purpose, Tier


class TierBudget:
    """The budget of one tier; `left` becomes negative if the parts taken exceed it."""

    def __init__(self, tier: Tier, budget: int) -> None:
        self.tier, self.budget = tier, budget
        self.left = budget
        self.lines: list[PlanLine] = []

    @property
    def taken(self) -> int:
        """The bytes taken so far."""
        return self.budget - self.left

    def take(self, purpose: Purpose, num_bytes: int, reason: str) -> None:
        """Takes bytes from the budget, and adds a line for them unless they are 0."""
        if num_bytes:
            self.left -= num_bytes
            self.lines.append(PlanLine(self.tier, purpose, num_bytes, reason))
