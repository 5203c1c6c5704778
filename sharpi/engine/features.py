"""Features: what the settings add to a model's own layers; loading builds all of it here.

Modules that few runs need are imported in the functions that use them.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from sharpi.engine.backends.cpu_part import CpuPart
from sharpi.engine.backends.model_part import ModelPart, StepObserver
from sharpi.engine.backends.parts import gpu_tier_of, keys_by_layer
from sharpi.engine.backends.recorded_part import ModelMemory
from sharpi.engine.load_decisions import LayerShare, LoadDecisions, LoadedModel
from sharpi.engine.placement.placement import has_gpu_layers
from sharpi.engine.prompt_cache.model_digest import ModelDigest, arithmetic_of
from sharpi.engine.prompt_cache.prompt_cache import ModelIdentity, PromptCache
from sharpi.engine.records.expert_records import ExpertRecords
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.drafting import Drafting
from sharpi.engine.scheduling.steps import TokenProposer
from sharpi.gguf.reader import GgufFile
from sharpi.model.weights import ModelWeights
from sharpi.settings import RunConfig
from sharpi.speculation.speculator import Speculator
from sharpi.system.process import Closing
from sharpi.tiers.plan import Tier

if TYPE_CHECKING:
    from sharpi.engine.backends.draft_head import DraftHead
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.engine.draft_model import DraftModel
    from sharpi.engine.memory_watch import MemoryWatch
    from sharpi.engine.prompt_cache.cache_folder import CacheFolder


class Features:
    """The features of one loaded model.

    `parts` are the model's parts, also those of other machines, and `memory` is their memory.
    `speculator` chooses drafts, which a `head` of the model may make. `page_store` keeps pages on
    disk; None without one. `records` count the uses of experts; None once they are closed. All of
    `ends` are closed first.
    """

    def __init__(
        self,
        parts: Sequence[ModelPart],
        memory: ModelMemory,
        records: ExpertRecords,
        speculator: Speculator,
        head: "DraftHead | None",
        draft_model: "DraftModel | None",
        page_store: PromptCache | None,
        ends: Sequence[Closing],
        observers: Sequence[StepObserver],
    ) -> None:
        self.parts, self.memory, self._ends = parts, memory, ends
        self.observers: tuple[StepObserver, ...] = (records, *observers)
        self.records: ExpertRecords | None = records
        self.speculator, self.head, self._draft_model = speculator, head, draft_model
        self.page_store = page_store
        self.notes = () if page_store is None else page_store.opening_notes
        self.exit_notes: tuple[str, ...] = ()  # lines for the user, once closed

    def proposer(self, runner: Runner) -> TokenProposer:
        """Returns what proposes tokens to the steps of one scheduler."""
        if not self.speculator.is_on:
            return TokenProposer()
        return Drafting(self.speculator, runner, self.head)

    def close(self) -> None:
        """Writes what is to be kept, and ends what was started. A second call does nothing."""
        for each in self._ends:
            each.close()
        if self.records is not None:
            self.exit_notes, self.records = self.records.close(), None
        if self.page_store is not None:
            page_store, self.page_store = self.page_store, None
            try:
                page_store.close()
            finally:
                self.exit_notes = (*self.exit_notes, *page_store.notes)
        if self.head is not None:
            self.head.close()
            self.head = None
        if self._draft_model is not None:
            self._draft_model.close()
            self._draft_model = None


class DraftEngine(Protocol):
    """A second model that drafts."""

    file: GgufFile
    runner: Runner

    def close(self) -> None:
        """Frees the model."""


class FeatureBuilder:
    """Builds the features that `config` asks for; `load` loads a second model, if one drafts.

    Opens the folder of the prompt cache at once; raises UsageError if it cannot be used.
    """

    def __init__(
        self, config: RunConfig, share: LayerShare, load: Callable[[RunConfig], DraftEngine]
    ) -> None:
        self._share, self._load = share, load
        self._folder = _cache_folder(config)

    def build(
        self,
        decided: LoadDecisions,
        weights: ModelWeights,
        tier: "ExpertTier | None",
        own: Sequence[ModelPart],
    ) -> Features:
        """Builds all features, after the parts of this machine."""
        records = _records(decided, tier)
        records.watch(gpu_tier_of(own))
        parts = self._share.parts(own, LoadedModel(decided, weights, tier, records))
        head = _head(decided, weights, own) if decided.model.has_head else None
        drops_windows = decided.settings.window_pages > 0
        memory = ModelMemory(
            parts, None if head is None else head.pages, self._share.remote,
            drops_windows=drops_windows,
        )  # fmt: skip
        draft_model = self._draft_model(decided, weights.output.rows)
        speculator = Speculator(
            decided.config.speculation,
            decided.settings.max_drafts,
            None if draft_model is None else draft_model.drafters,
            reads_disk=tier is not None,
        )
        page_store = self._page_store(decided, memory)
        watches = _memory_watches(decided, tier)
        return Features(
            parts, memory, records, speculator, head, draft_model, page_store,
            ends=(*watches, decided.reservation), observers=watches,
        )  # fmt: skip

    def _page_store(self, decided: LoadDecisions, memory: ModelMemory) -> PromptCache | None:
        if self._folder is None:
            return None
        identity = ModelIdentity(
            digest=ModelDigest(self._folder.path, decided.file.parts),
            arithmetic=arithmetic_of(
                decided.config, decided.settings, decided.model, decided.gpu_name
            ),
            about={"model": decided.file.path.name, "kv_type": str(decided.settings.kv_types)},
        )
        return PromptCache(self._folder, memory, identity)

    def _draft_model(self, decided: LoadDecisions, vocab_size: int) -> "DraftModel | None":
        """Loads the draft model, if there is one; raises UsageError for another vocabulary."""
        config, settings = decided.config, decided.settings
        if config.speculation.draft_model is None or not settings.max_drafts:
            return None
        from sharpi.engine.draft_model import DraftModel, check_vocabulary, draft_config

        engine = self._load(draft_config(config, settings.context_size))
        try:
            check_vocabulary(decided.file, engine.file)
        except BaseException:
            engine.close()
            raise
        least = config.speculation.min_probability
        return DraftModel(engine.runner, engine.close, vocab_size, least)


def _memory_watches(decided: LoadDecisions, tier: "ExpertTier | None") -> "tuple[MemoryWatch, ...]":
    """Returns what resizes slots in RAM; empty if there are none."""
    if tier is None or decided.plan is None:
        return ()
    from sharpi.engine.memory_watch import MemoryWatch

    return (MemoryWatch(tier, is_concurrent=not has_gpu_layers(decided.plan)),)


def _cache_folder(config: RunConfig) -> "CacheFolder | None":
    if config.prompt_cache is None:
        return None
    from sharpi.engine.prompt_cache.cache_folder import CacheFolder

    return CacheFolder(config.prompt_cache, config.prompt_cache_bytes)


def _records(decided: LoadDecisions, tier: "ExpertTier | None") -> ExpertRecords:
    config, model, name = decided.config, decided.model, decided.file.path.name
    layers = enumerate(decided.facts.layers[: model.num_layers])
    sizes = {i: layer.expert_bytes or 0 for i, layer in layers if layer.num_experts}
    planned = () if decided.plan is None else decided.plan.layers
    return ExpertRecords(
        config.experts, name, model, sizes, config.batch_size, tier, decided.profile,
        frozenset(layer.index for layer in planned if layer.experts is Tier.VRAM),
    )  # fmt: skip


def _head(decided: LoadDecisions, weights: ModelWeights, parts: Sequence[ModelPart]) -> "DraftHead":
    """Builds the MTP head, on the threads of the last part on the CPU, if there is one."""
    from sharpi.engine.backends.draft_head import HeadExperts, HeadPart

    model, settings, plan = decided.model, decided.settings, decided.plan
    on_cpu = [part for part in parts if isinstance(part, CpuPart)]
    pool = on_cpu[-1].pool if on_cpu else None
    if model.assistant is not None:
        from sharpi.engine.backends.assistant_part import AssistantPart

        return AssistantPart(model, weights, settings, pool, keys_by_layer(parts))
    experts = None
    if plan is not None and not plan.is_mapped and plan.layers[model.num_layers].num_experts:
        experts = HeadExperts(decided.file, model, plan)
    return HeadPart(model, weights, settings, pool, experts)
