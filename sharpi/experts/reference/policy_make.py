"""Creates the reference policy of a given kind."""

from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.experts.reference.learned import Learned
from sharpi.experts.reference.policy import SlotPolicy
from sharpi.experts.reference.policy_ranked import Lfru, Ranked, Static
from sharpi.experts.reference.slru import Slru


def make_policy(settings: PolicySettings) -> SlotPolicy:
    """Returns the Python policy, whose decisions the native policy has to repeat exactly."""
    if settings.kind.is_learned:
        return Learned(settings)
    if settings.kind is PolicyKind.SLRU:
        return Slru(settings)
    if settings.kind is PolicyKind.LFRU:
        return Lfru(settings)
    return Static(settings) if settings.kind is PolicyKind.STATIC else Ranked(settings)
