"""Temperature: scales queries by their position, so that attention stays sharp in long contexts."""

from msgspec import Struct

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.spec import ArchitectureSpec
from sharpi.ops.interface import Ops, X


class Temperature(Struct, frozen=True):
    """Scales queries by 1 + rate * ln(1 + floor((position + offset) / interval)).

    Sources: the code of Llama 4 (offset 1) and of Mistral's models since 2025 (offset 0) in
    transformers.
    """

    interval: int  # positions
    rate: float
    offset: int

    def apply(self, ops: Ops[X], queries: X) -> X:
        """Returns the queries (heads * head_dim,) scaled by their positions."""
        return ops.scale_by_position(queries, self.interval, self.rate, self.offset)


def read_temperature(reader: HyperparameterReader, spec: ArchitectureSpec) -> Temperature | None:
    """Returns the temperature that the file or its architecture states; None if neither does.

    Files of Mistral's models state only the rate; the interval is then the original context of the
    rope scaling.
    """
    rate = reader.number("attention.temperature_scale", spec.temperature_rate)
    interval = reader.integer("attention.temperature_length", spec.temperature_interval)
    interval = interval or reader.integer("rope.scaling.original_context_length", 0)
    is_stated = reader.has("attention.temperature_scale")
    if not rate or (not interval and not is_stated):
        return None
    if interval <= 0:
        name = reader.name("attention.temperature_length")
        raise reader.fault(f"{name} is {interval}; a temperature needs the length of its steps")
    return Temperature(interval, rate, spec.temperature_offset)
