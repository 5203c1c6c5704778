"""Loaded: a model in memory, with its scheduler and the monitor of its file."""

from typing import Any

from msgspec import Struct, field

from sharpi.engine.engine import Engine
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.serve.host.mapped_file import MappedFile

_MORE_BYTES = 1 << 20  # bytes of a body beyond its prompt, for schemas, tools and names
_ESCAPE = 3  # bytes of JSON per byte of text, if each character is a \u escape
MOST_BODY_BYTES = 32 << 20


class Loaded(Struct, frozen=True, eq=False):
    """A loaded model; only the engine's thread may step or read it."""

    engine: Engine
    scheduler: Scheduler
    file: MappedFile
    # Objects that requests build once per model, by type; dropped with the model, because they
    # would keep its file mapped.
    per_model_cache: dict[type, Any] = field(default_factory=dict)

    @property
    def max_body_bytes(self) -> int:
        """The most bytes of a request body whose prompt can fit the context, at most 32 MiB."""
        text = self.engine.context_size * self.engine.tokenizer.longest_token * _ESCAPE
        return min(text + _MORE_BYTES, MOST_BODY_BYTES)
