"""Features: what the settings add to a model's own layers; loading builds all of it here.

Modules that few runs need are imported in the functions that use them.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from sharpi.engine.backends.cpu_part import CpuPart
from sharpi.engine.backends.model_part import ModelPart, StepObserver
from sharpi.engine.backends.parts import gpu_tier_of, keys_by_layer
from sharpi.engine.backends.recorded_part import ModelMemory
from sharpi.engine.load_decisions import LayerShare, LoadDecisions, LoadedModel
from sharpi.engine.placement.placement import has_gpu_layers
from sharpi.engine.records.expert_records import ExpertRecords
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.steps import TokenProposer
from sharpi.gguf.reader import GgufFile
from sharpi.model.weights import ModelWeights
from sharpi.settings import RunConfig

if TYPE_CHECKING:
    from sharpi.engine.backends.draft_head import DraftHead
    from sharpi.engine.backends.expert_tier import ExpertTier
    from sharpi.engine.draft_model import DraftModel
    from sharpi.engine.memory_watch import MemoryWatch
    from sharpi.engine.prompt_cache.cache_folder import CacheFolder
    from sharpi.engine.prompt_cache.prompt_cache import PromptCache
    from sharpi.speculation.speculator import Speculator


class DraftEngine(Protocol):
    """A second model that drafts."""

    file: GgufFile
    runner: Runner

    def close(self) -> None: ...


class Features:
    """The features of one loaded model, built after the parts `own` of this machine.

    `parts` are also those of other machines. `page_store` is None without a prompt cache, `records`
    once they are closed. `load` loads a second model that drafts.
    """

    def __init__(
        self,
        decided: LoadDecisions,
        weights: ModelWeights,
        tier: "ExpertTier | None",
        own: Sequence[ModelPart],
        share: LayerShare,
        folder: "CacheFolder | None",
        load: Callable[[RunConfig], DraftEngine],
    ) -> None:
        records = ExpertRecords(
            decided.config, decided.file.path.name, decided.model, decided.facts, decided.plan,
            decided.profile, tier, gpu_tier_of(own),
        )  # fmt: skip
        self.records: ExpertRecords | None = records
        self.parts = share.parts(own, LoadedModel(decided, weights, tier, records))
        self.head = _head(decided, weights, own) if decided.model.has_head else None
        self.memory = ModelMemory(
            self.parts, None if self.head is None else self.head.pages, share.remote,
            drops_windows=decided.settings.window_pages > 0,
        )  # fmt: skip
        self._decided, self._reads_disk = decided, tier is not None
        self._draft_model = _draft_model(decided, weights.output.rows, load)
        self.page_store = None if folder is None else _page_store(folder, decided, self.memory)
        watches = _memory_watches(decided, tier)
        self.observers: tuple[StepObserver, ...] = (records, *watches)
        self._ends = (*watches, decided.reservation)
        self.notes = () if self.page_store is None else self.page_store.opening_notes
        self.exit_notes: tuple[str, ...] = ()  # lines for the user, once closed

    def proposer(self, runner: Runner) -> TokenProposer:
        config, settings = self._decided.config, self._decided.settings
        if not (config.speculation.is_on and settings.max_drafts):
            return TokenProposer()
        from sharpi.engine.scheduling.drafting import Drafting

        has_models = self._draft_model is not None
        return Drafting(lambda: self.speculator, runner, self.head, has_models=has_models)

    @cached_property
    def speculator(self) -> "Speculator":
        """What drafts tokens, if it is on."""
        from sharpi.speculation.speculator import Speculator

        drafters = None if self._draft_model is None else self._draft_model.drafters
        return Speculator(
            self._decided.config.speculation, self._decided.settings.max_drafts, drafters,
            reads_disk=self._reads_disk,
        )  # fmt: skip

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


def _page_store(
    folder: "CacheFolder", decided: LoadDecisions, memory: ModelMemory
) -> "PromptCache":
    from sharpi.engine.prompt_cache.model_digest import ModelDigest
    from sharpi.engine.prompt_cache.prompt_cache import PromptCache

    about = {"model": decided.file.path.name, "kv_type": str(decided.settings.kv_types)}
    digest = ModelDigest(folder.path, decided.file.parts)
    return PromptCache(folder, memory, digest, arithmetic(decided), about)


def arithmetic(decided: LoadDecisions) -> str:
    """Returns a name for the arithmetic of keys and values; equal names mean equal bits."""
    from sharpi.engine.prompt_cache.model_digest import arithmetic_of

    return arithmetic_of(decided.config, decided.settings, decided.model, decided.gpu_name)


def _draft_model(
    decided: LoadDecisions, vocab_size: int, load: Callable[[RunConfig], DraftEngine]
) -> "DraftModel | None":
    """Loads the draft model, if there is one; raises UsageError for another vocabulary."""
    config, settings = decided.config, decided.settings
    if config.speculation.draft_model is None or not settings.max_drafts:
        return None
    from sharpi.engine.draft_model import DraftModel, check_vocabulary, draft_config

    engine = load(draft_config(config, settings.context_size))
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


def open_page_folder(config: RunConfig) -> "CacheFolder | None":
    """Opens the folder of the prompt cache, if there is one; raises UsageError if it cannot."""
    if config.prompt_cache is None:
        return None
    from sharpi.engine.prompt_cache.cache_folder import CacheFolder

    return CacheFolder(config.prompt_cache, config.prompt_cache_bytes)


def _head(decided: LoadDecisions, weights: ModelWeights, parts: Sequence[ModelPart]) -> "DraftHead":
    """Builds the MTP head, on the threads of the last part on the CPU, if there is one."""
    from sharpi.engine.backends.draft_head import HeadPart, head_experts

    model, settings, plan = decided.model, decided.settings, decided.plan
    on_cpu = [part for part in parts if isinstance(part, CpuPart)]
    pool = on_cpu[-1].pool if on_cpu else None
    if model.assistant is not None:
        from sharpi.engine.backends.assistant_part import AssistantPart

        return AssistantPart(model, weights, settings, pool, keys_by_layer(parts))
    experts = None
    if plan is not None and not plan.is_mapped and plan.layers[model.num_layers].num_experts:
        experts = head_experts(decided.file, model, plan)
    return HeadPart(model, weights, settings, pool, experts)
