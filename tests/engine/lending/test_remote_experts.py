"""Experts that another rank computes: same bits as experts here, also if that rank is lost.

The other rank is in this process: requests and replies are the bytes that would be sent.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from streamed_models import DEMO, NUM_EXPERTS, NUM_LAYERS, decode, write_mixed_model

from sharpi.engine.backends.model_part import ModelPart
from sharpi.engine.engine import Engine
from sharpi.engine.lending.expert_client import ExpertClient
from sharpi.engine.lending.lender import MAX_TOKENS, WARM_UP, ExpertPrograms, Loan
from sharpi.engine.load_decisions import LayerShare, LoadedModel
from sharpi.engine.loader import load_engine
from sharpi.errors import ClusterError
from sharpi.experts.stats.stats_file import contradiction, format_stats, from_json, to_json
from sharpi.gguf.reader import open_gguf
from sharpi.settings import RunConfig

pytestmark = pytest.mark.native
REFERENCES = DEMO.parents[2] / "tests" / "references" / "data"
MOE_CASES = sorted(
    path.stem
    for path in REFERENCES.glob("*.gguf")
    if any("_exps.weight" in name for name in open_gguf(path).tensors)
)
NOBODY = 1 << 30


class OtherRank:
    """The channel to a rank that has the experts, which is lost after so many requests."""

    def __init__(self, other: int, programs: ExpertPrograms, lost_after: int = NOBODY) -> None:
        self.other, self.num_requests, self.num_warmed = other, 0, 0
        self._programs, self._lost_after = programs, lost_after

    def call(self, request: bytes, reply_bytes: int) -> np.ndarray:
        if self.num_requests >= self._lost_after:
            raise RuntimeError("Connection closed by peer")
        if request == WARM_UP:
            self.num_warmed += 1
            return np.frombuffer(request, np.uint8)
        self.num_requests += 1
        values = self._programs.compute_reply(np.frombuffer(request, np.uint8))
        assert values is not None
        assert values.nbytes == reply_bytes
        return values.reshape(-1).copy().view(np.uint8)

    def end(self) -> None:
        """Has nothing to end."""


class Ranks(LayerShare):
    """Shares a model as `ClusterLoader` does, with `num_ranks` others that lend every expert."""

    is_shared, begins_paused = True, False
    client: ExpertClient

    def __init__(self, num_ranks: int = 1, lost_after: int = NOBODY) -> None:
        self._num_ranks, self._lost_after = num_ranks, lost_after
        self.channels: list[OtherRank] = []
        self.said: list[str] = []
        self._programs: list[ExpertPrograms] = []

    def parts(self, own: Sequence[ModelPart], loaded: LoadedModel) -> list[ModelPart]:
        assert loaded.tier is not None
        loans = list(self._loans(loaded))
        layers = {loan.layer for loan in loans}
        self._programs = [_programs(loaded, layers) for _ in range(self._num_ranks)]
        self.channels = [
            OtherRank(rank, own, self._lost_after) for rank, own in enumerate(self._programs, 1)
        ]
        names = [f"rank {channel.other}" for channel in self.channels]
        shape = loaded.decided.model.num_layers, loaded.decided.model.num_experts
        fallback = _programs(loaded, layers)
        self.client = ExpertClient(shape, loans, self.channels, names, fallback, self.said.append)  # type: ignore[arg-type]
        if self.begins_paused:
            self.client.pause()
        loaded.tier.use_remote(self.client)
        return list(own)

    def _loans(self, loaded: LoadedModel) -> Iterator[Loan]:
        for index, layer in enumerate(loaded.weights.layers):
            count = layer.experts.up.num_experts if layer.experts else 0
            ends = np.linspace(0, count, self._num_ranks + 1).astype(int).tolist()
            for rank, (first, end) in enumerate(itertools.pairwise(ends), 1):
                yield from [Loan(rank, 0, index, first, end)] if count else []

    def close(self) -> None:
        for each in self._programs:
            each.close()


def _programs(loaded: LoadedModel, layers: set[int]) -> ExpertPrograms:
    used = loaded.decided.model.num_experts_per_token
    return ExpertPrograms(loaded.weights, loaded.decided.settings, used, layers)


@pytest.fixture
def load_shared() -> Iterator[Callable[..., Engine]]:
    engines: list[tuple[Engine, Ranks]] = []

    def load(model: Path, ranks: Ranks, **options: object) -> Engine:
        config = RunConfig(model, **options)  # type: ignore[arg-type]
        engines.append((load_engine(config, share=ranks), ranks))
        return engines[-1][0]

    yield load
    for engine, ranks in engines:
        engine.close()
        ranks.close()


def steps(engine: Engine) -> list[bytes]:
    """Returns the bits of a prompt's last logits, then of steps of one token and of a few."""
    ids = np.random.default_rng(3).integers(3, 60, 40).astype(np.int32)
    return [engine.logits(part).tobytes() for part in (ids[:1], ids[:7], ids)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "num_ranks"), [*((name, 3) for name in MOE_CASES), ("mixed", 1)])
def test_the_bits_are_those_of_one_machine(
    name: str, num_ranks: int, load_shared: Callable[..., Engine], tmp_path: Path
) -> None:
    model = REFERENCES / f"{name}.gguf"
    if name == "mixed":
        model = write_mixed_model(tmp_path / "mixed.gguf")
    ranks = Ranks(num_ranks)
    shared = load_shared(model, ranks, moe_slots=1, context_size=256)
    with load_engine(RunConfig(model, context_size=256)) as alone:
        assert steps(shared) == steps(alone)
    assert sum(channel.num_requests for channel in ranks.channels) > 0


def test_counts_add_up_and_are_written(load_shared: Callable[..., Engine]) -> None:
    ranks = Ranks()
    engine = load_shared(DEMO, ranks, moe_slots=2, context_size=256)
    decode(engine, max_tokens=12)
    stats = engine.expert_stats()
    assert stats is not None
    assert contradiction(stats) is None
    assert stats.asked is not None
    assert stats.asked.questions == ranks.channels[0].num_requests
    assert 0 < stats.decode.remote <= 11 * NUM_LAYERS * 2
    assert stats.prompt.remote == 0  # 40 tokens are more than a request is about
    assert stats.asked.bytes_received == stats.total.remote * 4 * engine.model_config.hidden_size
    assert sum(sum(layer.uses) for layer in stats.layers) == (40 + 11) * NUM_LAYERS * 2 - 39 * 2
    assert from_json(to_json(stats), "x") == stats
    assert f"{stats.total.remote} experts by other machines" in format_stats(stats)


@pytest.mark.slow
@pytest.mark.parametrize("lost_after", [0, 1, 20])
def test_a_lost_rank_costs_the_disk_and_no_bit(
    lost_after: int, load_shared: Callable[..., Engine]
) -> None:
    with load_engine(RunConfig(DEMO, context_size=256)) as alone:
        right = decode(alone)
    ranks = Ranks(lost_after=lost_after)
    engine = load_shared(DEMO, ranks, moe_slots=2, context_size=256)
    assert decode(engine) == right
    assert ranks.said == ["rank 1 is lost; its experts are read from the disk here"]
    stats = engine.expert_stats()
    assert stats is not None
    assert contradiction(stats) is None
    assert stats.decode.loads > 0


def test_requests_go_off_and_on_and_changes_no_bit(load_shared: Callable[..., Engine]) -> None:
    with load_engine(RunConfig(DEMO, context_size=256)) as alone:
        right = decode(alone)
    ranks = Ranks()
    ranks.begins_paused = True
    engine, counts = load_shared(DEMO, ranks, moe_slots=2, context_size=256), []
    for change in (None, ranks.client.resume, ranks.client.pause):
        if change is not None:
            change()
        assert decode(engine) == right
        counts.append(ranks.channels[0].num_requests)
    assert counts[0] == 0 < counts[1] == counts[2]
    assert ranks.channels[0].num_warmed == 1


def test_what_has_a_slot_or_finds_a_free_one_is_not_requested(
    load_shared: Callable[..., Engine],
) -> None:
    ranks = Ranks()
    engine = load_shared(DEMO, ranks, moe_slots=NUM_EXPERTS, context_size=256)
    decode(engine)
    assert ranks.channels[0].num_requests == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((0, 99), "about layer 99"),
        ((1, -1), "lengths contradict"),
        ((2, 1 << 20), "lengths contradict"),
        ((3, 5), "about layer 0"),
        ((4, 1), "tokens or experts that do not exist"),
        ((5, NUM_EXPERTS), "tokens or experts that do not exist"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    change: tuple[int, int], reason: str, load_shared: Callable[..., Engine]
) -> None:
    ranks = Ranks()
    load_shared(DEMO, ranks, moe_slots=2, context_size=256)
    programs = ranks._programs[0]
    request = np.frombuffer(programs.sample_request(0, 3)[0], np.uint8).copy()
    values = programs.compute_reply(request)
    assert values is not None
    assert np.isfinite(values).all()
    request.view(np.int32)[change[0]] = change[1]
    with pytest.raises(ClusterError, match=reason):
        programs.compute_reply(request)
    assert len(request) <= programs.max_request_bytes
    assert programs.max_items == MAX_TOKENS * 2


def test_a_request_about_nothing_is_the_last(load_shared: Callable[..., Engine]) -> None:
    ranks = Ranks()
    load_shared(DEMO, ranks, moe_slots=2, context_size=256)
    assert ranks._programs[0].compute_reply(np.zeros(16, np.uint8)) is None
