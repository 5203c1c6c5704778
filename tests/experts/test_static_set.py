"""Fixed sets as users write them."""

import pytest

from sharpi.errors import UsageError
from sharpi.experts.policy_choice import parse_ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [("1,2,,3", (1, 2, 3)), ("0-7", tuple(range(8))), (" 5 , 2 - 3, 2", (5, 2, 3)), ("7", (7,))],
)
def test_ids(text: str, ids: tuple[int, ...]) -> None:
    assert parse_ids(text, 8) == ids


@pytest.mark.parametrize("text", ["", ",", "8", "0-8", "3-1", "a", "1-2-3", "-1", "1.5"])
def test_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_ids(text, 8)
