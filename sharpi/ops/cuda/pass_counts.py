"""PassCounts: how prompts passed through a GPU that has not all of its layers' experts."""

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
        """What happened, in words."""
        notes = []
        if self.by_layer:
            notes.append(f"prompts that passed layer by layer: {self.by_layer}")
        if self.spilled_pages:
            notes.append(f"pages of prompts that were in RAM between layers: {self.spilled_pages}")
        if self.stash_overflows:
            notes.append(f"prompts too long for the stash: {self.stash_overflows}")
        if self.limited:
            notes.append(
                f"passes with room for so many routed tokens: {self.limited},"
                f" run again for want of it: {self.reruns}"
            )
        return tuple(notes)
