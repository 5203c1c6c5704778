"""The switches of the feed; its work within a step is tested with the engine."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from expert_files import ExpertFiles, SteppedStore, open_store

from sharpi.experts.native.feed import ExpertFeed
from sharpi.experts.policy_settings import PREDICTOR_NAMES, ROUTER

pytestmark = pytest.mark.native


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SteppedStore]:
    made = open_store(ExpertFiles(tmp_path))
    yield made
    made.close()
    made.policy.close()


@pytest.fixture
def feed(store: SteppedStore) -> Iterator[Callable[[str | None], ExpertFeed]]:
    made: list[ExpertFeed] = []

    def make(predictor: str | None) -> ExpertFeed:
        made.append(ExpertFeed(store, predictor, 2))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("predictor", [None, *PREDICTOR_NAMES])
def test_a_new_feed(
    predictor: str | None, feed: Callable[[str | None], ExpertFeed], store: SteppedStore
) -> None:
    fresh = feed(predictor)
    assert fresh.uses_router == (predictor == ROUTER)
    counts = fresh.counts()
    assert (counts.predicted, counts.used, counts.right) == (0, 0, 0)
    assert fresh.begin_step(may_predict=True) == (predictor is not None)
    assert not fresh.begin_step(may_predict=False)
    fresh.check_step()
    fresh.reset_sequence()
    assert fresh.table(2, 1) == store.table(2, 1) != 0


def test_close_frees_once_and_for_all(feed: Callable[[str | None], ExpertFeed]) -> None:
    closed = feed("both")
    closed.close()
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        closed.begin_step(may_predict=True)


def test_it_does_not_touch_what_others_acquire(
    feed: Callable[[str | None], ExpertFeed], store: SteppedStore
) -> None:
    quiet = feed(None)
    store.acquire(2, np.array([[0, 5]]))
    quiet.begin_step(may_predict=True)
    quiet.reset_sequence()
    store.wait(2, 5)
    store.release(2)
    quiet.check_step()
    assert store.counts()[2].loads == 2


def test_the_gate_that_stops_predictions_shows(
    feed: Callable[[str | None], ExpertFeed], store: SteppedStore
) -> None:
    fresh = feed("last-token")
    assert fresh.counts().is_worth_it
    predicted = sum(fresh.begin_step(may_predict=step % 2 == 0) for step in range(10))
    assert not fresh.begin_step(may_predict=False, is_prompt=True)
    counts = fresh.counts()
    assert (counts.steps, counts.predicted_steps) == (10, predicted) == (10, 5)


def test_each_sequence_has_its_own_routes(
    feed: Callable[[str | None], ExpertFeed], store: SteppedStore
) -> None:
    fresh = feed("last-token")
    fresh.set_sequences([7, 8, 9], [True, True, True])
    fresh.set_sequences([9], [False])
    fresh.set_sequences([1, 2, 3, 4, 9], [True, True, True, True, False])
    assert fresh.begin_step(may_predict=True)
