"""Model: the parts of an Engine that its requests need."""

from typing import Protocol

from sharpi.config import RunConfig
from sharpi.engine.prompt_cache.prompt_cache import PromptCache
from sharpi.engine.runner import Runner
from sharpi.speculation.speculator import Speculator
from sharpi.tokenizer.tokenizer import Tokenizer


class Model(Protocol):
    """The parts of an engine that a scheduler uses to compute requests."""

    config: RunConfig  # the user's settings
    runner: Runner  # computes the steps
    prompt_cache: PromptCache | None  # on disk; None without one
    speculator: Speculator  # drafts tokens if it is on
    tokenizer: Tokenizer  # turns tokens into text
