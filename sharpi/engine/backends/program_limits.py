"""The limits of the programs that CPU parts record."""

from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cpu.program import ProgramLimits
from sharpi.tiers.settings import EngineSettings


def program_limits(
    settings: EngineSettings, max_tokens: int, max_outputs: int, *, drops_keys: bool = False
) -> ProgramLimits:
    """Returns limits for steps of at most `max_tokens` tokens and `max_outputs` outputs."""
    return ProgramLimits(
        max_tokens=max_tokens,
        max_outputs=max_outputs,
        max_positions=settings.pages_per_sequence * PAGE_POSITIONS,
        precision=settings.rounding,
        instruction_set=settings.instruction_set,
        shares_rows=len({place.node for place in settings.places}) > 1,
        drops_keys=drops_keys,
    )
