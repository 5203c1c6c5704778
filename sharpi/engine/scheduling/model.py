"""Model: the parts of an Engine that its requests need."""

from typing import Protocol

from sharpi.config import RunConfig
from sharpi.engine.prompt_cache.prompt_cache import PromptCache
from sharpi.engine.runner import Runner
from sharpi.speculation.speculator import Speculator
from sharpi.tokenizer.tokenizer import Tokenizer


class Model(Protocol):
    """The parts of an engine that a scheduler uses to compute requests."""

    @property
    def config(self) -> RunConfig:
        """The user's settings."""

    @property
    def runner(self) -> Runner:
        """The runner, which computes the steps."""

    @property
    def prompt_cache(self) -> PromptCache | None:
        """The prompt cache on disk; None without one."""

    @property
    def speculator(self) -> Speculator:
        """The speculator, which drafts tokens if it is on."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, which turns tokens into text."""
