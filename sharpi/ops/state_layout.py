"""Where the recurrent layers' states lie in the memory of one sequence."""

from collections.abc import Iterable

from sharpi.ops.recurrent import RecurrentShape, whole_vectors

MAX_STATES = 4  # in all: that of the sequence, and snapshots of earlier positions


class StateLayout:
    """`offsets` in floats, one for each shape, in the order given; `num_floats` of all together."""

    def __init__(self, shapes: Iterable[RecurrentShape]) -> None:
        self.offsets: dict[RecurrentShape, int] = {}
        self.num_floats = 0
        for shape in shapes:
            self.offsets[shape] = self.num_floats
            self.num_floats += whole_vectors(shape.state_floats)


def state_bytes(shapes: Iterable[RecurrentShape]) -> int:
    """Bytes of these layers' states in all the copies that there may be."""
    return MAX_STATES * 4 * StateLayout(shapes).num_floats
