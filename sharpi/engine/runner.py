"""Runs a loaded model: tokens in, logits out, over a paged KV cache, on one processor or two."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sharpi.engine.backends.kept_routes import KeptRoutes
from sharpi.engine.backends.model_part import (
    ModelPart,
    Segment,
    StepOfPart,
    StepRoutes,
    Values,
    batches,
)
from sharpi.engine.kv.page_pool import PagePool
from sharpi.engine.kv.state_pool import StatePool
from sharpi.engine.records.expert_records import ExpertRecords
from sharpi.engine.sampling.sampler import NOT_FINITE
from sharpi.engine.settings import EngineSettings
from sharpi.errors import ModelFileError
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.state_layout import num_states

_SCORING_LOGITS_BYTES = 64 << 20  # of one batch when every token's logits are wanted


class Runner:
    """One loaded model, in parts that follow each other."""

    def __init__(
        self,
        settings: EngineSettings,
        vocab_size: int,
        parts: Sequence[ModelPart],
        records: ExpertRecords | None = None,
        *,
        has_states: bool = False,
    ) -> None:
        self.settings, self.vocab_size = settings, vocab_size
        self.parts, self._records = tuple(parts), records
        self._kept: dict[ModelPart, StepRoutes] = {}
        self.pages = PagePool(settings.num_pages)
        count = num_states(settings.num_parallel) if has_states else 0
        self.states = StatePool(count, self.copy_state)

    @property
    def context_size(self) -> int:
        """Positions of one sequence."""
        return self.settings.context_size

    @property
    def batch_size(self) -> int:
        """Tokens of one pass at most."""
        return self.settings.batch_size

    @property
    def prompt_batch(self) -> int:
        """Tokens of one sequence that one step takes at most, where outputs of the last suffice."""
        return max(self.batch_size, self.parts[-1].max_tokens)

    @property
    def scoring_batch(self) -> int:
        """Tokens of one batch when the logits of all are wanted."""
        fit = _SCORING_LOGITS_BYTES // (4 * self.vocab_size)
        return max(1, min(self.batch_size, fit))

    def forward(
        self,
        ids: IntArray,
        position: int,
        pages: IntArray,
        outputs: IntArray,
        state: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Logits (outputs, vocabulary) of the rows `outputs` of one sequence's next tokens.

        At most `batch_size` of them, or `prompt_batch` where no outputs but the last are wanted.
        `ids` (tokens,) at positions from `position` on; `pages` (pages,) covers them; `state`: of
        the recurrent layers, after the tokens before. The result is a view that the next call
        overwrites. Raises ModelFileError where an expert could not be read; the tokens are not in
        the cache then, and the state is of no use.
        """
        return self.step((Segment(ids, position, outputs, pages, state),))

    def largest(
        self, ids: IntArray, position: int, pages: IntArray, state: int | None = None
    ) -> int:
        """As `forward` for the last token alone, but only the id of its largest logit.

        Raises ModelFileError where that is not a finite number, as damaged weights give them.
        """
        last = np.array([len(ids) - 1], np.int32)
        segment = Segment(ids, position, last, pages, state)
        self._forward(StepOfPart((segment,), wants_largest=True))
        chosen = self.parts[-1].largest()
        if chosen < 0:
            raise ModelFileError(NOT_FINITE)
        return chosen

    def step(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """Logits (outputs, vocabulary) of several sequences' next tokens, segment by segment.

        At most `num_parallel` segments, of `batch_size` tokens together. A view, and errors, as of
        `forward`: none of the tokens is in the cache then, and no state of use.
        """
        return self._forward(StepOfPart(tuple(segments)))

    def _forward(self, step: StepOfPart) -> Values:
        usual = self.settings.num_parallel
        max_outputs = usual if step.num_outputs <= usual else self.scoring_batch
        self._kept = {}
        for part in self.parts:
            step = step._replace(incoming=self._pass(part, step, max_outputs))
        if self._records is not None:
            self._records.step(step.segments, self)
        assert step.incoming is not None
        return step.incoming

    def _pass(self, part: ModelPart, step: StepOfPart, max_outputs: int) -> Values:
        """Through one part, which may have to have more than one pass for a long prompt."""
        if step.num_tokens <= part.max_tokens:
            return part.run(step, max_outputs)
        kept = self._kept[part] = KeptRoutes(trims=False)
        (segment,) = step.segments
        values = []
        for own, batch in batches(segment, part.max_tokens):
            values.append(part.run(StepOfPart((batch,)), max_outputs).copy())
            kept.add({own.start: batch}, part)
        return np.concatenate(values)

    @property
    def routes(self) -> list[IntArray]:
        """The last step's expert ids, (rows, used) for each MoE layer.

        The last layer works for the wanted outputs only and has a row for each. What is beyond
        the step's rows is of earlier steps.
        """
        return [routes for part in self.parts for routes in self._kept.get(part, part).routes]

    @property
    def router_logits(self) -> list[Values]:
        """The last step's logits of each router, where they are kept."""
        return [
            logits for part in self.parts for logits in self._kept.get(part, part).router_logits
        ]

    def copy_page(self, source: int, target: int) -> None:
        """Makes a page of the KV cache what another is."""
        for part in self.parts:
            part.copy_page(source, target)

    def copy_state(self, source: int, target: int) -> None:
        """Makes what recurrent layers carry in one state what they do in another."""
        for part in self.parts:
            part.copy_state(source, target)

    def prepare(self) -> None:
        """Does now rather than at the first token what has to be done once."""
        for part in self.parts:
            part.prepare()

    def close(self) -> None:
        """Ends the threads and frees memory."""
        for part in self.parts:
            part.close()
