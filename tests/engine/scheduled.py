"""Answers of a scheduler, collected to compare them with the answers of single requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sharpi.constraints.constraint import Constraint
from sharpi.engine.engine import Engine
from sharpi.engine.sampling.generation_state import FinishInfo, TextDelta
from sharpi.engine.scheduling.scheduler import RequestId, Scheduler
from sharpi.settings import GenerationRequest, SamplingParams

GREEDY = SamplingParams(temperature=0)


def asked(max_tokens: int = 12, **fields: object) -> GenerationRequest:
    """Returns a greedy request that continues past the end of the text."""
    fields.setdefault("sampling", GREEDY)
    return GenerationRequest(max_tokens=max_tokens, ignore_end=True, **fields)  # type: ignore[arg-type]


@dataclass(eq=False)
class Heard:
    """The deltas and the end of one answer."""

    request_id: RequestId | None = None
    deltas: list[TextDelta] = field(default_factory=list)
    finish_infos: list[FinishInfo] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def ids(self) -> list[int]:
        return [choice.id for delta in self.deltas for choice in delta.tokens]

    @property
    def finish_info(self) -> FinishInfo:
        (finish_info,) = self.finish_infos
        return finish_info


def submit(
    scheduler: Scheduler,
    prompt: Sequence[int],
    request: GenerationRequest,
    constraint: Constraint | None = None,
    client: str = "",
) -> Heard:
    """Asks for an answer that is collected."""
    heard = Heard()
    heard.request_id = scheduler.submit(
        prompt,
        request,
        constraint=constraint,
        on_delta=heard.deltas.append,
        on_end=heard.finish_infos.append,
        client=client,
    )
    return heard


def finish(scheduler: Scheduler, limit: int = 20000) -> int:
    """Runs steps until no request is left; returns the number of steps."""
    for count in range(limit):
        if not scheduler.step():
            return count
    raise AssertionError("the scheduler does not come to an end")


def alone(
    engine: Engine, prompt: Sequence[int], request: GenerationRequest
) -> tuple[str, list[int]]:
    """Returns text and tokens of the same request, computed alone in a new conversation."""
    session = engine.session()
    generation = session.generate(prompt, request)
    text = "".join(generation)
    session.reset()
    return text, [choice.id for choice in generation.choices]


def assert_nothing_is_left(scheduler: Scheduler, engine: Engine) -> None:
    """Asserts that all pages and states are free once the cache is dropped."""
    assert (scheduler.num_waiting, scheduler.num_running, scheduler.cache.num_in_use) == (0, 0, 0)
    scheduler.cache.clear()
    runner = engine.runner
    assert scheduler.cache.num_evictable == 0
    assert sorted(runner.pages._free) == list(range(runner.pages.size))
    # A state of a draft that was right changes places with the sequence's own.
    states = sorted(runner.states._free + runner.states_after._free)
    assert states == list(range(runner.states.size + runner.states_after.size))
