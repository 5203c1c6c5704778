"""Bodies that clients write in their own ways."""

import json
from typing import Any

from sharpi.serve.http.endpoint import Body, decode_body


class Anything(Body):
    """A body that holds any value, and a number."""

    value: Any = None
    count: int | None = None


def test_lone_surrogates_are_replaced() -> None:
    value = ["a\ud800b\udc00", {"\udfff": "\U0001f600", "n": [1, None, 2.5, True]}]
    whole = ["a\ufffdb\ufffd", {"\ufffd": "\U0001f600", "n": [1, None, 2.5, True]}]
    assert decode_body(json.dumps({"value": value}).encode(), Anything).value == whole


def test_whole_floats_nulls_and_unknown_members_pass() -> None:
    assert decode_body(b'{"count": 3.0, "frobnicate": {}}', Anything).count == 3
    assert decode_body(b'{"count": null}', Anything).count is None
