"""Any JSON gets an answer, or a refusal in the API's form, and never causes a failure."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_host import ScriptedHost

_KEYS = ("type", "role", "content", "text", "name", "function", "id", "input", "65", "arguments")
_KEYS += ("tool_calls", "parameters", "tools", "mode", "schema", "format", "tool_use_id")
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "text", "user", "assistant", "function", "auto", "type", "\ud800", "{"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
_HELLO = [{"role": "user", "content": "Hi"}]
_SHARED = (
    "temperature top_p top_k seed stop logit_bias stream tools tool_choice thinking_budget"
    " chat_template_kwargs metadata min_p"
)
APIS: dict[str, tuple[dict[str, Any], str]] = {
    "/v1/chat/completions": (
        {"messages": _HELLO},
        "messages n logprobs top_logprobs max_tokens stream_options modalities functions store"
        " continue_final_message reasoning_effort parallel_tool_calls",
    ),
    "/v1/completions": (
        {"prompt": "Hi"},
        "prompt n best_of echo logprobs max_tokens suffix stream_options",
    ),
    "/v1/responses": (
        {"input": "Hi"},
        "input instructions include reasoning text store truncation top_logprobs user"
        " max_output_tokens parallel_tool_calls",
    ),
    "/v1/messages": (
        {"messages": _HELLO, "max_tokens": 9},
        "messages max_tokens system thinking output_config stop_sequences context_management"
        " mcp_servers container",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("path", APIS)
def test_no_request_is_a_failure(http: httpx.Client, host: ScriptedHost, path: str) -> None:
    base, own = APIS[path]
    names = st.sampled_from(f"{own} {_SHARED}".split())

    @settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.dictionaries(names, _VALUES, min_size=1, max_size=3))
    def send(values: dict[str, Any]) -> None:
        body = json.dumps(base | values)
        response = http.post(path, content=body)
        assert response.status_code in (200, 400, 404), response.text
        if response.status_code != 200:
            error = response.json()["error"]
            assert error["message"]
            assert "\n" not in error["message"]
            assert error["type"] in ("invalid_request_error", "not_found_error")

    send()
    assert host.num_open == 0
