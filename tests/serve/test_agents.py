"""Agents and front ends: the bodies that they send, each to the end of a task with two tools."""

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from scripted_host import MODEL, ScriptedHost

Body = dict[str, Any]
PARAMETERS = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
    "required": ["command"],
    "additionalProperties": False,
}
PICTURE = "data:image/png;base64,AAAA"
CALLS = [
    'Let me see.\n<tool_call>{"name": "run", "arguments": {"command": "ls"}}</tool_call>',
    '<think>So.</think><tool_call>{"name": "read", "arguments": {"command": "a"}}</tool_call>',
]


def chat_turn(body: Body, answer: Body) -> Body | None:
    message = answer["choices"][0]["message"]
    if not (calls := message.get("tool_calls")):
        return None
    results = [{"role": "tool", "tool_call_id": each["id"], "content": "done"} for each in calls]
    return body | {"messages": [*body["messages"], message, *results]}


def with_picture(body: Body, answer: Body) -> Body | None:
    """Sends the picture that a tool returned as open-webui does: as a user's message."""
    turn = chat_turn(body, answer)
    parts = [{"type": "text", "text": "See above."}]
    parts.append({"type": "image_url", "image_url": {"url": PICTURE}})
    return turn and turn | {"messages": [*turn["messages"], {"role": "user", "content": parts}]}


def responses_turn(body: Body, answer: Body) -> Body | None:
    outputs = [
        {
            "type": "function_call_output",
            "call_id": each["call_id"],
            "output": [{"type": "input_image", "image_url": PICTURE}],
        }
        for each in answer["output"]
        if each["type"] == "function_call"
    ]
    return body | {"input": [*body["input"], *answer["output"], *outputs]} if outputs else None


def messages_turn(body: Body, answer: Body) -> Body | None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    results: list[Body] = [
        {"type": "tool_result", "tool_use_id": each["id"], "content": [image]}
        for each in answer["content"]
        if each["type"] == "tool_use"
    ]
    said = {"role": "assistant", "content": answer["content"]}
    reply = {"role": "user", "content": [*results, image, {"type": "text", "text": "<reminder>"}]}
    return body | {"messages": [*body["messages"], said, reply]} if results else None


def chat_tools(*names: str) -> list[Body]:
    function = {"description": "d", "parameters": PARAMETERS}
    return [{"type": "function", "function": {"name": name, **function}} for name in names]


def question(text: str = "Look.") -> list[Body]:
    return [{"role": "system", "content": "Help."}, {"role": "user", "content": text}]


CHAT: Body = {"model": MODEL, "messages": question(), "tools": chat_tools("run", "read")}
CODEX_TOOLS: list[Body] = [
    *({"type": "function", "name": name, "parameters": PARAMETERS} for name in ("run", "read")),
    {"type": "web_search", "external_web_access": False},
    {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark"}},
    {"type": "namespace", "name": "mcp__x", "tools": [{"type": "function", "name": "far"}]},
    {"type": "local_shell"},
]
CODEX: Body = {
    "model": MODEL,
    "instructions": "You are a coding agent.",
    "input": [
        {"type": "message", "role": role, "content": [{"type": "input_text", "text": "Look."}]}
        for role in ("developer", "user")
    ],
    "tools": CODEX_TOOLS,
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "1",
    "text": {"verbosity": "low"},
    "client_metadata": {"x": "y"},
}
CLAUDE: Body = {
    "model": MODEL,
    "max_tokens": 32000,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1;"},
        {"type": "text", "text": "You are.", "cache_control": {"type": "ephemeral"}},
    ],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Look."}]}],
    "tools": [
        *(
            {"name": name, "description": "d", "input_schema": PARAMETERS}
            for name in ("run", "read")
        ),
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ],
    "thinking": {"type": "adaptive"},
    "metadata": {"user_id": "u"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
}
WEBUI = {"stream_options": {"include_usage": True}, "reasoning_effort": "low", "logit_bias": {}}
CONTINUE = {"parallel_tool_calls": False, "temperature": 0, "stop": [], "max_tokens": 4096}
SILLY_CHAT: Body = {
    **{"temperature": 1, "max_tokens": 300, "presence_penalty": 0, "frequency_penalty": 0},
    **{"top_p": 1, "top_k": 0, "stop": [], "logit_bias": {}, "seed": -1, "n": 1, "user": None},
    **{"tool_choice": "auto", "reasoning_effort": "medium", "include_reasoning": True},
    "messages": [
        *question("[Start a new Chat]"),
        {"role": "assistant", "content": "Hello.", "name": "Seraphina"},
        {"role": "user", "content": "Look.", "name": "User"},
        {"role": "system", "content": "Write the next reply."},
    ],
}
AGENTS: dict[str, tuple[str, Body, Callable[[Body, Body], Body | None]]] = {
    "openai": ("/v1/chat/completions", CHAT, chat_turn),
    "continue": ("/v1/chat/completions", CHAT | CONTINUE, chat_turn),
    "open-webui": ("/v1/chat/completions", CHAT | WEBUI, with_picture),
    "sillytavern": ("/v1/chat/completions", CHAT | SILLY_CHAT, chat_turn),
    "codex": ("/v1/responses", CODEX, responses_turn),
    "claude": ("/v1/messages", CLAUDE, messages_turn),
}


@pytest.mark.parametrize("agent", AGENTS)
def test_agents_reach_the_end_of_a_task(http: httpx.Client, host: ScriptedHost, agent: str) -> None:
    path, body, turn = AGENTS[agent]
    host.scripts = [*CALLS, "All done."]
    following: Body | None = body
    while following is not None:
        response = http.post(path, json=following)
        assert response.status_code == 200, response.text
        following = turn(following, response.json())
    assert "All done." in response.text
    assert len(host.asked) == 3
    assert host.asked[1].prompt in host.asked[2].prompt or agent == "open-webui"
    assert "cch=1" not in host.asked[0].prompt


def test_parts_of_anthropics_api_in_a_chat(http: httpx.Client, host: ScriptedHost) -> None:
    """Zed sends them to servers of OpenAI's API; a blank model is that of the server."""
    host.scripts = ["Hi."]
    use = {"type": "tool_use", "id": "1", "name": "run", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "image"}]}
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    messages = [
        *question(),
        {"role": "assistant", "content": [thought, {"type": "text", "text": "So:"}, use]},
        {"role": "user", "content": [result, {"type": "text", "text": "Well?"}]},
    ]
    body = CHAT | {"model": " ", "messages": messages}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
    *_, answer, tool, user, _ = host.asked[0].prompt.split("<|im_start|>")
    call = '<tool_call>{"name": "run", "arguments": {"command": "ls"}}</tool_call>'
    assert answer == f"assistant\n<think>Hm.</think>So:{call}<|im_end|>\n"
    assert tool == "tool\n[image omitted]<|im_end|>\n"
    assert user == "user\nWell?<|im_end|>\n"


SILLY: Body = {
    **{"prompt": "Once", "model": "", "max_new_tokens": 9, "max_tokens": 9, "n_predict": 9},
    **{"temperature": 2.5, "top_p": 1, "typical_p": 1, "typical": 1, "min_p": 0.1, "top_k": 0},
    **{"repetition_penalty": 1, "repeat_penalty": 1, "repeat_last_n": 0, "rep_pen": 1, "skew": 0},
    **{"top_a": 0, "tfs": 1, "mirostat_mode": 0, "mirostat": 0, "mirostat_tau": 5, "nsigma": 0},
    **{"dry_multiplier": 0, "dry_base": 1.75, "dry_sequence_breakers": ["\n"], "min_keep": 0},
    **{"xtc_probability": 0, "xtc_threshold": 0.1, "top_n_sigma": 0, "smoothing_factor": 0},
    **{"guidance_scale": 1, "negative_prompt": "", "grammar": "", "logit_bias": [[65, False]]},
    **{"stop": ["\nUser:"], "stopping_strings": ["\nUser:"], "custom_token_bans": "", "n": 1},
    **{"ban_eos_token": False, "ignore_eos": False, "cache_prompt": True, "n_probs": 2},
    **{"samplers": ["penalties", "dry", "top_k", "top_p", "temperature"], "min_tokens": 0},
    **{"api_type": "llamacpp", "truncation_length": 4096, "num_ctx": 4096, "banned_strings": []},
}


def test_llama_cpps_clients(http: httpx.Client, host: ScriptedHost) -> None:
    """The bodies of SillyTavern and llama.vim, and the fields that they read."""
    host.scripts = ["Hi.\nMore"]
    whole = http.post("/completion", json=SILLY).json()
    assert (whole["content"], whole["stop"], whole["stop_type"]) == ("Hi.\nMore", True, "eos")
    assert (whole["tokens_evaluated"], whole["tokens_predicted"]) == (4, 8)
    assert (whole["has_new_line"], whole["truncated"], whole["prompt"]) == (True, False, "Once")
    settings = whole["generation_settings"]
    assert (settings["n_predict"], settings["min_p"], settings["top_k"]) == (9, 0, 0)
    assert settings["stop"] == ["\nUser:"]
    assert whole["timings"]["predicted_n"] == 8
    [first, *_] = whole["completion_probabilities"]
    assert (first["token"], len(first["top_logprobs"])) == ("H", 2)

    frames = http.post("/completion", json=SILLY | {"stream": True}).text.split("\n\n")
    events = [json.loads(each.removeprefix("data: ")) for each in frames if each]
    assert "".join(each["content"] for each in events) == "Hi.\nMore"
    assert [each["stop"] for each in events] == [False] * (len(events) - 1) + [True]
    assert events[0]["completion_probabilities"]

    several = {"prompt": [["On", 99, "e"], "Twice"], "response_fields": ["stop", "timings/cache_n"]}
    answers = http.post("/completion", json=several).json()
    assert answers == [{"stop": True, "timings/cache_n": 0}] * 2
    assert [each.prompt for each in host.asked[-2:]] == ["Once", "Twice"]

    gap = {"input_prefix": "a", "input_suffix": "b", "prompt": "", "t_max_predict_ms": 500}
    assert http.post("/infill", json=gap).json()["error"]["code"] == "not_supported"
    pieces = http.post("/tokenize", json={"content": ["\u00e9", 65], "with_pieces": True}).json()
    assert [each["piece"] for each in pieces["tokens"]] == [[0xC3], [0xA9], "A"]
    prompt = http.post("/apply-template", json={"messages": question()}).json()["prompt"]
    assert prompt.endswith("Look.<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_overflow_is_told_in_words_that_agents_know(
    http: httpx.Client, host: ScriptedHost, path: str
) -> None:
    """Claude Code reads both numbers, and Codex the code; others look for one of the phrases."""
    long = "a " * 1_000_000
    body = {"model": MODEL, "max_tokens": 9, "input": long, "messages": question(long)[1:]}
    response = http.post(path, json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    pattern = r"prompt is too long: at least \d+ tokens > 100000 maximum context length"
    assert re.match(pattern, error["message"])
    assert path == "/v1/messages" or error["code"] == "context_length_exceeded"
