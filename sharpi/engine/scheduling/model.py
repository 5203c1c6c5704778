"""Model: the parts of an Engine that its requests need."""

from typing import Protocol

from sharpi.config import RunConfig
from sharpi.engine.prompt_cache.prompt_cache import PromptCache
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.steps import TokenProposer
from sharpi.tokenizer.tokenizer import Tokenizer


class Model(Protocol):
    """The parts of an engine that a scheduler uses to compute requests."""

    config: RunConfig  # the user's settings
    runner: Runner  # computes the steps
    tokenizer: Tokenizer  # turns tokens into text

    @property
    def page_store(self) -> PromptCache | None:
        """Keeps pages for later runs; None without one."""

    def proposer(self) -> TokenProposer:
        """Returns what proposes tokens to the steps of one scheduler."""
