"""DraftHead: a head on the CPU that predicts tokens from a model's own hidden states.

Its program is recorded once and replayed for every draft.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sharpi.engine.backends.expert_slots import ExpertSlots
from sharpi.engine.backends.model_part import Values
from sharpi.engine.backends.recorded_part import new_pool, program_limits
from sharpi.experts.native.store import StoreSettings
from sharpi.experts.native.store_abi import read_layout
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.gguf.reader import GgufFile
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.ops.cpu.kv_cache import KvCache
from sharpi.ops.cpu.library import ThreadPool
from sharpi.ops.cpu.program import IntArray, Program, StepArrays
from sharpi.ops.cpu.recorder import Recorder
from sharpi.tiers.expert_memory import TOKENS
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.planner import HEAD_BATCH
from sharpi.tiers.settings import EngineSettings


class HeadOutput(NamedTuple):
    """A head's hidden state and logits for its last token, views that the next pass overwrites."""

    hidden: npt.NDArray[np.float32]  # (hidden,)
    logits: npt.NDArray[np.float32]  # (vocabulary,)


class DraftHead(ABC):
    """A head for multi-token prediction, with or without keys and values of its own.

    `pages` has the head's keys and values; its page ids are those of the model's KV cache. With
    `follows_drafts` each draft has its own position; otherwise all drafts have the position of the
    first. `pool` has the threads of the model's CPU part, which closes them; if None, the head
    starts threads of its own.
    """

    follows_drafts: bool
    pages: KvCache

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        settings: EngineSettings,
        pool: ThreadPool | None,
    ) -> None:
        self._config, self._weights, self._settings = config, weights, settings
        self._owns_pool = pool is None
        self._pool = pool or new_pool(settings)

    @property
    def context_size(self) -> int:
        """The maximum number of positions of one sequence."""
        return self._settings.context_size

    @abstractmethod
    def fill(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> None:
        """Computes keys and values from `position` on, by hidden (tokens, hidden) and next ids."""

    @abstractmethod
    def predict(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> HeadOutput:
        """Does as `fill`, and predicts the token after the last of `ids`; raises ModelFileError."""

    @cached_property
    def _program(self) -> Program:
        head, recorder = self._weights.head, self._recorder()
        assert head is not None
        hidden = recorder.incoming(self._config.hidden_size)
        out, logits = head.step(recorder, self._config, hidden, self._weights.rope_divisors)
        return recorder.finish(logits, out)

    @abstractmethod
    def _recorder(self) -> Recorder:
        """Returns the recorder of the head's program."""

    def close(self) -> None:
        """Frees the head's memory, and ends the threads that it started."""
        if "_program" in self.__dict__:
            self._program.close()
            del self._program
        if self._owns_pool:
            self._pool.close()


_DECODED = 4  # a pass of at most so many tokens runs on the threads for decoding


class HeadPart(DraftHead):
    """Runs an MTP head with its own keys and values, and `experts` unless RAM holds all of them."""

    follows_drafts = True

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        settings: EngineSettings,
        pool: ThreadPool | None,
        experts: ExpertSlots | None = None,
    ) -> None:
        mixer = config.head_mixer
        assert mixer is not None
        assert mixer.kv_shape is not None
        super().__init__(config, weights, settings, pool)
        self._experts = experts
        self.pages = KvCache([mixer.kv_shape], settings.num_pages, settings.kv_types)
        self._inputs = StepArrays(HEAD_BATCH, 1, settings.pages_per_sequence)

    def fill(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> None:
        for first in range(0, len(ids), HEAD_BATCH):
            own = slice(first, first + HEAD_BATCH)
            self._run(ids[own], position + first, pages, hidden[own], num_outputs=0)

    def predict(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> HeadOutput:
        most = len(ids) - HEAD_BATCH
        if most > 0:
            self.fill(ids[:most], position, pages, hidden[:most])
            ids, hidden, position = ids[most:], hidden[most:], position + most
        program = self._run(ids, position, pages, hidden, num_outputs=1)
        return HeadOutput(program.hidden[0], program.logits[0])

    def _run(
        self, ids: IntArray, position: int, pages: IntArray, hidden: Values, num_outputs: int
    ) -> Program:
        program, step, count = self._program, self._inputs.step, len(ids)
        self._inputs.write(0, 0, ids, position, pages)
        self._inputs.request_outputs(0, count - 1)
        step.num_tokens, step.num_outputs = count, num_outputs
        program.incoming[:count] = hidden
        s = self._settings
        threads = s.num_threads if count <= _DECODED else s.num_batch_threads
        if self._experts is not None:
            self._experts.feed.begin_step(may_predict=False, is_prompt=count > 1)
        program.run(step, self._pool, threads)
        if self._experts is not None:
            self._experts.feed.check_step()
        return program

    def _recorder(self) -> Recorder:
        limits = program_limits(self._settings, HEAD_BATCH, max_outputs=1)
        feed = None if self._experts is None else self._experts.feed
        return Recorder(limits, self.pages, feed)

    def close(self) -> None:
        super().close()
        if self._experts is not None:
            self._experts.close()
            self._experts = None


def head_experts(file: GgufFile, model: ModelConfig, plan: TierPlan) -> ExpertSlots:
    """Opens the slots of the MTP head's layer, as planned; raises as `ExpertSlots.open`."""
    layer, used = model.num_layers, model.num_experts_per_token
    layout = read_layout(file, layer + 1, (layer,))
    slots = (*(0,) * layer, plan.layers[layer].ram_slots)
    settings = StoreSettings(slots, TOKENS * used, used * layout.largest_slot)
    experts = ExpertSlots(layout, settings, used)
    experts.open(PolicySettings(PolicyKind.SLRU, model.num_experts, used, slots), slots)
    return experts
