"""Model: the parts of an Engine that its requests need."""

from typing import Protocol

from sharpi.config import RunConfig
from sharpi.engine.prompt_cache.prompt_cache import PromptCache
from sharpi.engine.runner import Runner
from sharpi.speculation.speculator import Speculator
from sharpi.tokenizer.tokenizer import Tokenizer


class Model(Protocol):
    """The protocol of what requests are computed by."""

    @property
    def config(self) -> RunConfig:
        """The user's settings."""

    @property
    def runner(self) -> Runner:
        """Computes the steps."""

    @property
    def prompt_cache(self) -> PromptCache | None:
        """Keeps pages on disk, if that is wanted."""

    @property
    def speculator(self) -> Speculator:
        """Drafts tokens, if that is wanted."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Turns tokens into text."""
