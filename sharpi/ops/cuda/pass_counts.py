"""PassCounts: statistics of prefill on a GPU that does not hold all experts of its layers."""

from msgspec import Struct


class PassCounts(Struct):
    """Counts of prefills by how they were computed.

    A pass is one run of a batch, or of a prompt, through the layers.
    """

    by_layer: int = 0  # prompts whose batches ran each layer in turn
    spilled_pages: int = 0  # pages of the stash that were in RAM
    # Prompts too long for the stash, which ran in batches one after the other.
    stash_overflows: int = 0
    limited: int = 0  # passes with a limit on the rows for routed tokens
    reruns: int = 0  # passes that were repeated because the limit was too small

    @property
    def notes(self) -> tuple[str, ...]:
        """The counts as lines for the user."""
        notes = []
        if self.by_layer:
            notes.append(f"prompts computed layer by layer: {self.by_layer}")
        if self.spilled_pages:
            notes.append(f"stash pages that were in RAM between layers: {self.spilled_pages}")
        if self.stash_overflows:
            notes.append(f"prompts too long for the stash: {self.stash_overflows}")
        if self.limited:
            notes.append(
                f"passes with a limit of routed tokens: {self.limited},"
                f" repeated because it was too small: {self.reruns}"
            )
        return tuple(notes)
