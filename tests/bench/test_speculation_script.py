"""The script's drafts are right as often as asked for."""

import pytest

pytest.importorskip("speculation", reason="it is part of a checkout")
from decoding.speculation import Scripted

TEXT = list(range(100, 2100))


@pytest.mark.parametrize("acceptance", [0.0, 0.5, 0.9, 1.0])
def test_scripted_drafts_are_right_as_often_as_asked_for(acceptance: float) -> None:
    drafter, right = Scripted(TEXT, acceptance), 0
    for known in range(len(TEXT) - 4):
        draft = drafter.propose(4)
        assert draft is not None
        right += sum(a == b for a, b in zip(draft.tokens, TEXT[known:], strict=False))
        drafter.extend([TEXT[known]])
    assert right / (4 * (len(TEXT) - 4)) == pytest.approx(acceptance, abs=0.03)


def test_scripted_drafts_end_with_the_text() -> None:
    drafter = Scripted([1, 2, 3], 1.0)
    drafter.extend([1, 2])
    draft = drafter.propose(4)
    assert draft is not None
    assert draft.tokens == (3,)
    drafter.extend([3])
    assert drafter.propose(4) is None
