"""Where the recurrent layers' states lie in the memory of one sequence."""

from collections.abc import Iterable

from sharpi.ops.recurrent import RecurrentShape, whole_vectors


class StateLayout:
    """`offsets` in floats, one for each shape, in the order given; `num_floats` of all together."""

    def __init__(self, shapes: Iterable[RecurrentShape]) -> None:
        self.offsets: dict[RecurrentShape, int] = {}
        self.num_floats = 0
        for shape in shapes:
            self.offsets[shape] = self.num_floats
            self.num_floats += whole_vectors(shape.state_floats)

    @property
    def num_bytes(self) -> int:
        """Bytes of one sequence's state."""
        return 4 * self.num_floats
