"""Says how much RAM a draft model takes, and how many bytes each of its drafts reads."""

from collections.abc import Iterator

from sharpi.config import RunConfig
from sharpi.engine.draft_model import check_vocabulary, draft_config
from sharpi.engine.placement.placement import Placement
from sharpi.engine.settings import decide
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import read_config
from sharpi.tiers.plan import Tier, TierPlan
from sharpi.units import format_bytes


def draft_model_notes(
    config: RunConfig, file: GgufFile, plan: TierPlan, hardware: HardwareInfo
) -> Iterator[str]:
    """Yields sentences on the draft model, if there is one.

    Raises UsageError for another vocabulary, ModelFileError for a file that is no model.
    """
    path = config.speculation.draft_model
    if path is None:
        return
    own = draft_config(config, plan.context_size)
    with open_gguf(path) as draft:
        check_vocabulary(file, draft)
        model = read_config(draft)
        placed = Placement(own, draft, model, decide(own, draft, model, hardware), hardware).plan()
    taken = placed.bytes_in(Tier.RAM)
    yield (
        f"the draft model {path.name} takes {format_bytes(taken)} of RAM more than this plan has;"
        f" a draft reads {format_bytes(_read(placed))}, a token of the model"
        f" {format_bytes(_read(plan))}"
    )
    if plan.bytes_in(Tier.RAM) + taken > plan.ram_budget:
        yield "the model and its draft model have no room in RAM together; give a smaller -c"


def _read(plan: TierPlan) -> int:
    """Returns the bytes of weights that a token reads, from all tiers."""
    return sum(plan.speed.bytes_per_token.values())
