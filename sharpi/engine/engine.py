"""A loaded model: its file, tokenizer, chat format and runner in one object."""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sharpi.engine.features import Features
from sharpi.engine.generation import Session
from sharpi.engine.load_decisions import LoadDecisions
from sharpi.engine.mapped_file import MappedFile
from sharpi.engine.prompt_cache.model_digest import arithmetic_of
from sharpi.engine.prompt_cache.prompt_cache import PromptCache
from sharpi.engine.runner import Runner
from sharpi.engine.sampling.generation_state import refuse_unknown
from sharpi.engine.scheduling.steps import TokenProposer
from sharpi.engine.sequence import Sequence
from sharpi.errors import UsageError
from sharpi.speculation.speculator import Speculator
from sharpi.system.process import Closing
from sharpi.tokenizer.chat_template import chat_format
from sharpi.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.experts.stats.stats import ExpertStats
    from sharpi.experts.stats.stats_collect import ExpertView


class Engine(Closing):
    """A loaded model, built by `load_engine`; a context manager that frees threads and memory."""

    def __init__(
        self,
        decided: LoadDecisions,
        tokenizer: Tokenizer,
        runner: Runner,
        notes: tuple[str, ...],
        tier: "ExpertTier | None",
        features: Features,
        mapped_file: MappedFile,
    ) -> None:
        self.config, self.model_config = decided.config, decided.model
        self.file, self.plan, self._gpu_name = decided.file, decided.plan, decided.gpu_name
        self.tokenizer, self.chat_format = tokenizer, chat_format(tokenizer)
        self.runner, self.notes = runner, notes
        self._tier, self.features, self.mapped_file = tier, features, mapped_file
        self._tier_notes: tuple[str, ...] = ()

    @property
    def exit_notes(self) -> tuple[str, ...]:
        """Lines for the user, once the engine is closed."""
        return (*self._tier_notes, *self.features.exit_notes)

    @property
    def speculator(self) -> Speculator:
        """What drafts tokens, if it is on."""
        return self.features.speculator

    @property
    def page_store(self) -> PromptCache | None:
        """The pages on disk; None without a prompt cache."""
        return self.features.page_store

    def proposer(self) -> TokenProposer:
        """Returns what proposes tokens to the steps of one scheduler."""
        return self.features.proposer(self.runner)

    @property
    def context_size(self) -> int:
        """The maximum number of positions of one session."""
        return self.runner.context_size

    @property
    def arithmetic(self) -> str:
        """A name for the arithmetic of keys and values; equal names mean equal bits."""
        settings = self.runner.settings
        return arithmetic_of(self.config, settings, self.model_config, self._gpu_name)

    def session(self) -> Session:
        """Returns a new, empty conversation; sessions share the KV pages, not their text."""
        return Session(self)

    def logits(
        self, ids: npt.NDArray[np.int32], num_prompt_tokens: int = 0
    ) -> npt.NDArray[np.float32]:
        """Computes the logits (tokens, vocabulary) after each of ids (tokens,).

        The first `num_prompt_tokens` count as a prompt, of which `--kv-keep` may drop keys and
        values. Raises UsageError for ids that the model does not have.
        """
        if ids.size == 0:
            raise UsageError("there are no token ids; at least one is needed")
        refuse_unknown(ids.tolist(), self.runner.vocab_size)
        sequence = Sequence(self.runner, num_prompt_tokens)
        try:
            return sequence.extend_scored(ids.tolist())
        finally:
            sequence.truncate(0)

    @property
    def streams_experts(self) -> bool:
        """True if experts are read from the file into slots in RAM; False if the file is mapped."""
        return self._tier is not None

    def expert_stats(self) -> "ExpertStats | None":
        """Returns the expert statistics so far; None without experts or before any was counted."""
        records = self.features.records
        return None if records is None else records.stats()

    def expert_view(self) -> "ExpertView | None":
        """Returns which experts are resident and used now; None without routed experts.

        It is cheap, but must be called on the engine's thread between two steps.
        """
        records = self.features.records
        return None if records is None else records.view()

    def close(self) -> None:
        """Writes the records of experts, ends the threads and closes the file.

        `exit_notes` then has lines for the user. A second call does nothing.
        """
        self.runner.leave_ranks()
        self.features.close()
        self.runner.close()
        if self._tier is not None:
            self._tier_notes = tuple(self._tier.notes)
            self._tier.close()
            self._tier = None
        self.mapped_file.close()
        self.file.close()
