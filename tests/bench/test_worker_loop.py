"""Workers time each pass, leave out earlier passes, and report what grew meanwhile."""

from typing import Any

from contest.worker_loop import _timed


class CountingModel:
    """Counts its tokens."""

    def __init__(self) -> None:
        self.description: dict[str, Any] = {}
        self.passes: list[list[int]] = []
        self.length = 0

    def compute(self, ids: list[int]) -> None:
        self.passes.append(ids)
        self.length += len(ids)

    def truncate(self, length: int) -> None:
        self.length = length

    def counts(self) -> dict[str, float]:
        return {"tokens": sum(map(len, self.passes))}


def test_a_turn() -> None:
    model = CountingModel()
    answer = _timed(model, before=[1, 2], ids=[3, 4, 5], pass_size=2)
    assert model.passes == [[1, 2], [3, 4], [5]]
    assert model.length == 0
    assert answer["counts"]["tokens"] == 3
    assert len(answer["pass_seconds"]) == 2
    assert 0 < sum(answer["pass_seconds"]) <= answer["seconds"]
