"""Which layers of a model see only a window, or a chunk, of the positions before."""

import numpy as np

from sharpi.model.keys import Keys
from sharpi.model.spec import ArchitectureSpec


def read_windows(keys: Keys, spec: ArchitectureSpec) -> list[int]:
    """Positions of each layer's window, 0 where it sees everything; raises ModelFileError."""
    size = keys.integer("attention.sliding_window", spec.chunk_size)
    if size < 0:
        raise keys.fault(f"{keys.name('attention.sliding_window')} is {size}, less than 0")
    return [size if has_window else 0 for has_window in _pattern(keys, spec.window_period)]


def _pattern(keys: Keys, period: int) -> list[bool]:
    """Which layers have one: the file's flags or period, else the architecture's period."""
    key = "attention.sliding_window_pattern"
    value = keys.metadata.get(keys.name(key))
    if isinstance(value, np.ndarray):
        return keys.flags(key)
    if value is not None:
        period = keys.integer(key)
    return [period <= 0 or layer % period != period - 1 for layer in range(keys.num_layers)]
