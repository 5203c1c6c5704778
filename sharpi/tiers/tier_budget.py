"""TierBudget: the parts of one tier's budget that are already taken, line by line."""

from sharpi.tiers.plan import PlanLine, Purpose, Tier


class TierBudget:
    """The planner takes bytes from it; `left` becomes negative when they exceed the budget."""

    def __init__(self, tier: Tier, budget: int) -> None:
        self.tier, self.budget = tier, budget
        self.left = budget
        self.lines: list[PlanLine] = []

    @property
    def taken(self) -> int:
        """The bytes taken so far."""
        return self.budget - self.left

    def take(self, purpose: Purpose, num_bytes: int, reason: str) -> None:
        """Takes bytes from the budget; 0 bytes leave no line."""
        if num_bytes:
            self.left -= num_bytes
            self.lines.append(PlanLine(self.tier, purpose, num_bytes, reason))
