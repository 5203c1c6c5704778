"""PassCounts: statistics of prefill on a GPU that does not hold all experts of its layers."""

from msgspec import Struct


class PassCounts(Struct):
    """`by_layer`: prompts whose batches took turns at every layer. The others are what limits cost.

    `spilled_pages` of the stash were in RAM; `stash_overflows`: prompts that it did not hold, which
    passed batch after batch. `limited` passes had buffers of a fixed number of routed rows, which
    were too few for those that became `reruns`.
    """

    by_layer: int = 0
    spilled_pages: int = 0
    stash_overflows: int = 0
    limited: int = 0
    reruns: int = 0

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
