"""Requests that arrive over time at a scheduler with few pages; some are cancelled."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from hypothesis import strategies as st
from scheduled import Heard, asked, submit

from sharpi.engine.engine import Engine
from sharpi.engine.scheduling.scheduler import Scheduler

# Prompts begin with some of the same words, so that they meet each other's pages.
TEXTS = [np.random.default_rng(s).integers(3, 280, 240).tolist() for s in (1, 2, 3)]

arrivals = st.lists(
    st.tuples(
        st.integers(0, 9),  # steps before it comes
        st.sampled_from(TEXTS),
        st.integers(1, 200),  # tokens that are the text's
        st.lists(st.integers(3, 280), max_size=3),
        st.integers(1, 40),  # tokens to make
        st.none() | st.integers(1, 30),  # steps after which it is cancelled
    ),
    min_size=1,
    max_size=6,
)


@contextmanager
def few_pages(engine: Engine, count: int) -> Iterator[None]:
    """Leaves the scheduler only `count` free pages."""
    pages = engine.runner.pages
    held = [pages.allocate() for _ in range(pages.size - count)]
    yield
    pages.free(*(page for page in held if page is not None))


def prompt_of(arrival: tuple) -> list[int]:
    _, text, length, tail, _, _ = arrival
    return [*text[:length], *tail]


def submit_all(scheduler: Scheduler, arrivals: list[tuple]) -> list[Heard]:
    """Submits each request at its time of arrival, and cancels those that are to be cancelled."""
    heard: list[Heard] = []
    for arrival in arrivals:
        steps, *_, max_tokens, cancelled_after = arrival
        for _ in range(steps):
            scheduler.step()
        heard.append(submit(scheduler, prompt_of(arrival), asked(max_tokens)))
        if cancelled_after is not None:
            for _ in range(cancelled_after):
                scheduler.step()
            scheduler.cancel(heard[-1].request_id)  # type: ignore[arg-type]
    return heard
