"""Bodies that msgspec refuses and that are read again."""

import json
from typing import Any

import pytest

from sharpi.serve.http import body
from sharpi.serve.http.body import Body, decode_body


class Anything(Body):
    """A body that holds any value."""

    value: Any = None


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_lone_surrogates_are_replaced(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(body, "_SLICE", size)
    value = ["a\ud800b\udc00", {"\udfff": "\U0001f600", "n": [1, None, 2.5, True]}]
    whole = ["a\ufffdb\ufffd", {"\ufffd": "\U0001f600", "n": [1, None, 2.5, True]}]
    assert decode_body(json.dumps({"value": value}).encode(), Anything).value == whole
