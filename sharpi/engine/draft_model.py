"""DraftModel: a second, smaller model with the same vocabulary, which drafts for the first."""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Ids
from itertools import zip_longest

from sharpi.engine.kv.pages import shared_length
from sharpi.engine.placement.placement import Placement
from sharpi.engine.runner import Runner
from sharpi.engine.sequence import Sequence
from sharpi.engine.settings import decide
from sharpi.errors import ContextFullError, UsageError
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.hardware.info import HardwareInfo
from sharpi.model.config import read_config
from sharpi.settings import DraftKind, RunConfig
from sharpi.speculation.draft import Draft, Drafter, likely_draft
from sharpi.tiers.plan import Tier, TierPlan
from sharpi.units import format_bytes

_TOKENS = "tokenizer.ggml.tokens"


def draft_config(config: RunConfig, context_size: int) -> RunConfig:
    """Returns the configuration of the draft model: on the CPU, with the same context."""
    assert config.speculation.draft_model is not None
    return RunConfig(
        model=config.speculation.draft_model,
        context_size=context_size,
        num_threads=config.num_threads,
        num_batch_threads=config.num_batch_threads,
        batch_size=config.batch_size,
        instruction_set=config.instruction_set,
        device="cpu",
        num_parallel=config.num_parallel,
    )


def check_vocabulary(file: GgufFile, draft: GgufFile) -> None:
    """Raises UsageError if the two files have different tokens; one may have more at the end."""
    own, other = (_tokens(each) for each in (file, draft))
    for i, (token, drafted) in enumerate(zip_longest(own, other)):
        if token is None or drafted is None:
            return
        if token != drafted:
            raise UsageError(
                f"{draft.path.name} cannot draft for {file.path.name}: token {i} is {drafted!r}"
                f" there, and {token!r} in the model; both need the same vocabulary"
            )


def _tokens(file: GgufFile) -> list[str]:
    tokens = file.metadata.get(_TOKENS)
    return list(tokens) if isinstance(tokens, Iterable) else []


class DraftModel:
    """Drafts for any number of sequences, up to a token unlikely or unknown to the main model."""

    def __init__(
        self,
        runner: Runner,
        close: Callable[[], None],
        vocab_size: int,
        min_probability: float,
    ) -> None:
        self.runner, self.close = runner, close
        self.vocab_size, self.min_probability = vocab_size, min_probability
        self._idle: list[Sequence] = []

    def drafters(self) -> list[Drafter]:
        """Returns a list with one drafter, for one more sequence."""
        sequence = self._idle.pop() if self._idle else Sequence(self.runner)
        return [ModelDrafter(self, sequence)]

    def release(self, sequence: Sequence) -> None:
        """Takes back the sequence of an ended request; another request may reuse its KV cache."""
        self._idle.append(sequence)


class ModelDrafter:
    """Drafts the tokens that the draft model finds most likely."""

    kind: DraftKind = "draft"
    is_free = False

    def __init__(self, model: DraftModel, sequence: Sequence) -> None:
        self._model, self._sequence = model, sequence
        self._tokens: list[int] = []
        self._is_lost = False

    def extend(self, tokens: Ids[int]) -> None:
        self._tokens += tokens
        self._is_lost |= any(token >= self._model.runner.vocab_size for token in tokens)

    def propose(self, most: int) -> Draft | None:
        if self._is_lost or most <= 0:
            return None
        try:
            return self._drafted(most)
        except ContextFullError:
            self._is_lost = True
            return None

    def _drafted(self, most: int) -> Draft | None:
        sequence, model = self._sequence, self._model
        same = min(shared_length(sequence.tokens, self._tokens), len(self._tokens) - 1)
        if same < len(sequence.tokens):
            sequence.truncate(same)
        logits = sequence.extend(self._tokens[same:])
        sequence.save_snapshot()
        return likely_draft(
            self.kind, logits, lambda token: sequence.extend([token]), most, model.vocab_size,
            model.min_probability,
        )  # fmt: skip

    def close(self) -> None:
        self._model.release(self._sequence)


def draft_model_notes(
    config: RunConfig, file: GgufFile, plan: TierPlan, hardware: HardwareInfo
) -> Iterator[str]:
    """Yields sentences on the draft model, if any; raises UsageError and ModelFileError."""
    path = config.speculation.draft_model
    if path is None:
        return
    own = draft_config(config, plan.context_size)
    with open_gguf(path) as draft:
        check_vocabulary(file, draft)
        model = read_config(draft)
        placed = Placement(own, draft, model, decide(own, draft, model, hardware), hardware).plan()
    taken = placed.bytes_in(Tier.RAM)
    yield (
        f"the draft model {path.name} takes {format_bytes(taken)} of RAM more than this plan has;"
        f" a draft reads {format_bytes(_read(placed))}, a token of the model"
        f" {format_bytes(_read(plan))}"
    )
    if plan.bytes_in(Tier.RAM) + taken > plan.ram_budget:
        yield "the model and its draft model have no room in RAM together; give a smaller -c"


def _read(plan: TierPlan) -> int:
    """Returns the bytes of weights that a token reads, from all tiers."""
    return sum(plan.speed.bytes_per_token.values())
