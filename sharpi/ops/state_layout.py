"""Where the recurrent layers' states lie in the memory of one sequence."""

from collections.abc import Iterable

from sharpi.ops.recurrent import RecurrentShape, whole_vectors

MAX_STATES = 4  # of one sequence: its own, and snapshots of earlier positions


class StateLayout:
    """`offsets` in floats, one for each shape, in the order given; `num_floats` of all together."""

    def __init__(self, shapes: Iterable[RecurrentShape]) -> None:
        self.offsets: dict[RecurrentShape, int] = {}
        self.num_floats = 0
        for shape in shapes:
            self.offsets[shape] = self.num_floats
            self.num_floats += whole_vectors(shape.state_floats)


def num_states(num_parallel: int) -> int:
    """Copies that there may be: one for each sequence, and as many snapshots as for one alone."""
    return MAX_STATES - 1 + num_parallel


def state_bytes(shapes: Iterable[RecurrentShape]) -> int:
    """Bytes of one copy of these layers' states."""
    return 4 * StateLayout(shapes).num_floats
