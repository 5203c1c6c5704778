"""StateLayout: the places of the recurrent layers' states in the memory of one sequence."""

from collections.abc import Iterable

from sharpi.ops.recurrent import RecurrentShape, whole_vectors

MAX_STATES = 4  # of one sequence: its current state, and snapshots of earlier positions


class StateLayout:
    """The layout of one state: `offsets` of the shapes, and `num_floats` of all, in floats."""

    def __init__(self, shapes: Iterable[RecurrentShape]) -> None:
        self.offsets: dict[RecurrentShape, int] = {}
        self.num_floats = 0
        for shape in shapes:
            self.offsets[shape] = self.num_floats
            self.num_floats += whole_vectors(shape.state_floats)


def num_states(num_parallel: int) -> int:
    """Returns the number of states: one for each sequence, and MAX_STATES - 1 snapshots."""
    return MAX_STATES - 1 + num_parallel


def state_bytes(shapes: Iterable[RecurrentShape]) -> int:
    """Returns the bytes of one state of these layers."""
    return 4 * StateLayout(shapes).num_floats
