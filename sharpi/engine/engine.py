"""A loaded model: its file, tokenizer, chat format and runner, and what can be asked of them."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sharpi.config import GenerationRequest, RunConfig
from sharpi.constraints.constraint import Constraint
from sharpi.engine.generation import Generation
from sharpi.engine.records.expert_records import ExpertRecords
from sharpi.engine.runner import Runner
from sharpi.engine.sampling.generation_state import GenerationState, refuse_unknown
from sharpi.engine.sequence import Sequence as TokenSequence
from sharpi.errors import UsageError
from sharpi.gguf.reader import GgufFile
from sharpi.model.config import ModelConfig
from sharpi.tiers.plan import TierPlan
from sharpi.tokenizer.chat_template import ChatFormat
from sharpi.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.experts.stats.stats import ExpertStats
    from sharpi.experts.stats.view import ExpertView


class Session:
    """A conversation: one sequence in the KV cache, continued where it agrees with the prompt."""

    def __init__(self, runner: Runner, tokenizer: Tokenizer, context_shift: bool) -> None:
        self._sequence = TokenSequence(runner)
        self._vocab_size = runner.vocab_size
        self._tokenizer = tokenizer
        self._context_shift = context_shift

    @property
    def tokens(self) -> list[int]:
        """Tokens in the KV cache."""
        return self._sequence.tokens

    def generate(
        self,
        prompt_ids: Sequence[int],
        request: GenerationRequest,
        *,
        constraint: Constraint | None = None,
    ) -> Generation:
        """Continues `prompt_ids`, the whole sequence of all turns; only its new end is computed.

        `constraint` belongs to this answer alone. Raises UsageError for ids that the model does
        not have.
        """
        generation_state = GenerationState(
            self._tokenizer, self._vocab_size, prompt_ids, request, constraint
        )
        return Generation(self._sequence, generation_state, self._context_shift)

    def reset(self) -> None:
        """Forgets everything and returns the KV pages."""
        self._sequence.truncate(0)


class Engine:
    """Built by `load_engine`; a context manager that frees threads and memory at the end."""

    def __init__(
        self,
        config: RunConfig,
        model_config: ModelConfig,
        file: GgufFile,
        tokenizer: Tokenizer,
        chat_format: ChatFormat,
        runner: Runner,
        notes: tuple[str, ...],
        plan: TierPlan | None = None,
        tier: "ExpertTier | None" = None,
        records: ExpertRecords | None = None,
    ) -> None:
        self.config = config
        self.model_config = model_config
        self.file = file
        self.tokenizer = tokenizer
        self.chat_format = chat_format
        self.runner = runner
        self.notes = notes
        self.plan = plan
        self.exit_notes: tuple[str, ...] = ()
        self._tier, self._records = tier, records

    @property
    def context_size(self) -> int:
        """Positions that one session can hold."""
        return self.runner.context_size

    def session(self) -> Session:
        """A new, empty conversation; sessions share the context's KV pages."""
        self.runner.prepare()
        return Session(self.runner, self.tokenizer, self.config.context_shift)

    def logits(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """Teacher-forced logits (tokens, vocabulary) of ids (tokens,); UsageError for bad ids."""
        if ids.size == 0:
            raise UsageError("there are no token ids; at least one is needed")
        refuse_unknown(ids.tolist(), self.runner.vocab_size)
        sequence = TokenSequence(self.runner)
        try:
            return sequence.extend_scored(ids.tolist())
        finally:
            sequence.truncate(0)

    @property
    def streams_experts(self) -> bool:
        """Whether experts are read from the file when missed, rather than being mapped."""
        return self._tier is not None

    def expert_stats(self) -> "ExpertStats | None":
        """What the experts did so far; None without routed experts or where nobody counted."""
        return self._records.stats() if self._records else None

    def expert_view(self) -> "ExpertView | None":
        """Which experts are resident and used now; None without routed experts.

        Cheap, but to be called on the engine's thread, between two steps.
        """
        return self._records.view() if self._records else None

    def close(self) -> None:
        """Writes what was recorded, ends the threads and closes the file.

        What is to be told then is in `exit_notes`. A second call does nothing.
        """
        if self._records is not None:
            self.exit_notes = self._records.close()
            self._records = None
        self.runner.close()
        if self._tier is not None:
            self.exit_notes = (*self._tier.notes, *self.exit_notes)
            self._tier.close()
            self._tier = None
        self.file.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
