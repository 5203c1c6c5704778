"""Ledger: what of one tier's budget is spoken for, line by line."""

from sharpi.tiers.plan import PlanLine, Purpose, Tier


class Ledger:
    """Filled while planning; `left` turns negative when a need is larger than the budget."""

    def __init__(self, tier: Tier, budget: int) -> None:
        self.tier, self.budget = tier, budget
        self.left = budget
        self.lines: list[PlanLine] = []

    def take(self, purpose: Purpose, num_bytes: int, reason: str) -> None:
        """Speaks for bytes; a need of none leaves no line."""
        if num_bytes:
            self.left -= num_bytes
            self.lines.append(PlanLine(self.tier, purpose, num_bytes, reason))
