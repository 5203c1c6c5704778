"""StateLayout: the offsets of the recurrent layers within the state of one sequence."""

from collections.abc import Iterable

from sharpi.ops.recurrent import RecurrentShape, whole_vectors

MAX_STATES = 4  # for one sequence: its current state, and snapshots of earlier positions


class StateLayout:
    """The offset of each recurrent layer within a sequence's state, in floats.

    `offsets` maps a layer's shape to its offset. `num_floats` is the size of the state.
    """

    def __init__(self, shapes: Iterable[RecurrentShape]) -> None:
        self.offsets: dict[RecurrentShape, int] = {}
        self.num_floats = 0
        for shape in shapes:
            self.offsets[shape] = self.num_floats
            self.num_floats += whole_vectors(shape.state_floats)


def num_states(num_parallel: int, max_drafts: int = 0) -> int:
    """Returns the number of states: one for each sequence, and MAX_STATES - 1 snapshots.

    With drafts there is one more for every token of a check.
    """
    return MAX_STATES - 1 + num_parallel + num_draft_states(num_parallel, max_drafts)


def num_draft_states(num_parallel: int, max_drafts: int) -> int:
    """Returns the number of states that a check of drafts stores: one after each of its tokens.

    Returns 0 without drafts.
    """
    return max_drafts + num_parallel if max_drafts else 0


def state_bytes(shapes: Iterable[RecurrentShape]) -> int:
    """Returns the bytes of one state of these layers."""
    return 4 * StateLayout(shapes).num_floats
