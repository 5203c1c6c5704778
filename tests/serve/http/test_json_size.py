"""The bounds of JSON text before it is parsed."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpi.serve.http import json_size
from sharpi.serve.http.errors import ApiError
from sharpi.serve.http.json_size import check_json_size

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a"\\[]{},:\u00e9', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    is_nested = isinstance(value, dict | list)
    return max(map(depth_of, inner), default=0) + is_nested


def fits(data: bytes) -> bool:
    try:
        check_json_size(data)
    except ApiError:
        return False
    return True


@settings(max_examples=60, deadline=None)
@given(VALUES, st.integers(1, 9), st.booleans())
def test_depth_is_that_of_the_values(value: Any, size: int, is_ascii: bool) -> None:
    data = json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "replace")
    depth = depth_of(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_size, "_SLICE", size)
        patch.setattr(json_size, "MAX_DEPTH", depth)
        assert fits(data)
        patch.setattr(json_size, "MAX_DEPTH", depth - 1)
        assert depth == 0 or not fits(data)


# They are made when a test needs them, and not while tests are collected.
COSTLY: dict[str, Callable[[], bytes]] = {
    "depth": lambda: b"[" * 100_000,
    "numbers": lambda: b"[" + b"1," * 300_000 + b"1]",
    "messages": lambda: b'{"messages":[' + b"{}," * 300_000 + b"{}]}",
    "keys": lambda: b"{" + b",".join(b'"%d":1' % number for number in range(300_000)) + b"}",
}


@pytest.mark.parametrize("name", COSTLY)
def test_what_would_take_much_memory_is_refused(name: str) -> None:
    assert not fits(COSTLY[name]())


def test_a_long_text_is_one_value() -> None:
    assert fits(json.dumps({"prompt": '[{"a\\": 1},' * 200_000}).encode())
