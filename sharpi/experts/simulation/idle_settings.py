"""Refuses flags of `sharpi simulate` that have no effect on any of the chosen policies."""

from collections.abc import Callable, Mapping, Sequence

from sharpi.errors import UsageError
from sharpi.experts.policy_settings import POLICIES, PolicyKind

# For each flag of `sharpi simulate`: which policies use it, in words and as a condition.
_USERS: Mapping[str, tuple[str, Callable[[PolicyKind], bool]]] = {
    "--admission": ("slru", lambda kind: kind is PolicyKind.SLRU),
    "--load-budget": ("learned-prefetch", lambda kind: kind.prefetches),
    "--moving-slots": ("the learned policies", lambda kind: kind.is_learned),
    "--resident": ("static", lambda kind: kind is PolicyKind.STATIC),
    "--warmup-tokens": ("static", lambda kind: kind is PolicyKind.STATIC),
    "--warm-pin": ("all policies but static", lambda kind: kind is not PolicyKind.STATIC),
    "--warm-pin-after": ("all policies but static", lambda kind: kind is not PolicyKind.STATIC),
}


def refuse_idle(given: Sequence[str], policies: Sequence[str]) -> None:
    """Raises UsageError for the first given flag that has no effect on any of the policies."""
    kinds = [POLICIES[name] for name in policies if name in POLICIES]
    for flag in given:
        users, has_it = _USERS[flag]
        if not any(map(has_it, kinds)):
            raise UsageError(f"{flag} is for {users}, not for --policy {','.join(policies)}")
