"""Creates the reference policy of a given kind."""

from reference_learned import Learned
from reference_policy import SlotPolicy
from reference_policy_ranked import Lfru, Lru, Slru, Static

from sharpi.experts.policy_settings import PolicyKind, PolicySettings


def make_policy(settings: PolicySettings) -> SlotPolicy:
    """Returns the Python policy, whose decisions the native policy has to repeat exactly."""
    if settings.kind.is_learned:
        return Learned(settings)
    if settings.kind is PolicyKind.SLRU:
        return Slru(settings)
    if settings.kind is PolicyKind.LFRU:
        return Lfru(settings)
    return Static(settings) if settings.kind is PolicyKind.STATIC else Lru(settings)
