"""Reads a model's hyperparameters from the metadata of a GGUF file, and checks their ranges.

Callers pass the keys of the GGUF specification without the `<architecture>.` prefix.
"""

from collections.abc import Mapping

from sharpi.errors import ModelFileError
from sharpi.gguf.cursor import file_error
from sharpi.gguf.metadata import Metadata


class HyperparameterReader:
    """Typed access to the architecture's keys, by their names without prefix.

    With `counts_heads`, the last layers, which are for multi-token prediction, count as layers,
    too. Every error is a ModelFileError that names the file and the key.
    """

    def __init__(
        self, metadata: Metadata, architecture: str, *, counts_heads: bool = False
    ) -> None:
        self.metadata = metadata
        self.architecture = architecture
        self.defaults: Mapping[str, float] = {}  # of keys that old files lack
        self.num_predict_layers = self.integer("nextn_predict_layers", 0)
        self.num_layers = self._model_layers(may_be_none=counts_heads)
        self._num_flags = self.num_layers
        if counts_heads:
            self.num_layers += self.num_predict_layers
            self.num_predict_layers = 0
        self.hidden_size = self.count("embedding_length", maximum=1 << 20)

    def _model_layers(self, *, may_be_none: bool) -> int:
        """Returns the number of layers without those for MTP; 0 is allowed with `may_be_none`."""
        stored, extra = self.count("block_count", maximum=4096), self.num_predict_layers
        if not 0 <= extra < stored + may_be_none:
            raise self.fault(
                f"{self.name('nextn_predict_layers')} is {extra}, outside 0..{stored - 1}"
            )
        return stored - extra

    def name(self, key: str) -> str:
        return f"{self.architecture}.{key}"

    def fault(self, what: str) -> ModelFileError:
        """Returns the error to raise; `what` describes the wrong value."""
        return file_error(self.metadata.path, what)

    def has(self, key: str) -> bool:
        return self.name(key) in self.metadata

    def integer(self, key: str, default: int | None = None) -> int:
        """Returns the integer under a key; it must fit into 32 bits, as kernels need."""
        limit = 1 << 31
        return self.metadata.get_int(self.name(key), default, minimum=-limit, maximum=limit - 1)

    def number(self, key: str, default: float | None = None) -> float:
        return self.metadata.get_float(self.name(key), self.defaults.get(key, default))

    def flag(self, key: str, default: bool | None = None) -> bool:
        return self.metadata.get_bool(self.name(key), default)

    def positive(self, key: str, default: float | None = None) -> float:
        """Returns the number under a key, which must be above 0; the default may be 0."""
        value = self.number(key, default)
        if value <= 0 and value != default:
            raise self.fault(f"{self.name(key)} is {value}, not more than 0")
        return value

    def count(self, key: str, maximum: int) -> int:
        """Returns the integer under a key, which must be from 1 to `maximum`."""
        value = self.integer(key)
        if not 0 < value <= maximum:
            raise self.fault(f"{self.name(key)} is {value}, outside 1..{maximum}")
        return value

    def flags(self, key: str) -> list[bool]:
        """Returns one boolean per layer; False for MTP layers that the file leaves out."""
        values = self.metadata.get_array(self.name(key))
        if len(values) < self._num_flags:
            raise self.fault(f"{self.name(key)} has {len(values)} values, not {self.num_layers}")
        flags = [bool(value) for value in values[: self.num_layers]]
        return flags + [False] * (self.num_layers - len(flags))

    def per_layer(self, key: str, minimum: int = 1) -> list[int]:
        """Returns one count per layer; the file has an array of counts, or one count for all.

        Counts of MTP layers are left out, unless `counts_heads` is set. If the file has no counts
        for them, they are those of the last layer.
        """
        values = self.metadata.get_ints(self.name(key))
        stored = self.num_layers + self.num_predict_layers
        if len(values) == 1:
            values = values * stored
        if len(values) == self._num_flags:
            values = values + values[-1:] * (self.num_layers - self._num_flags)
        if len(values) not in (stored, self.num_layers) or min(values) < minimum:
            raise self.fault(f"{self.name(key)} must be 1 or {stored} counts, not {values[:8]}")
        return values[: self.num_layers]
