"""Reads the body of /v1/completions: prompts as text or ids, and their request."""

from typing import Any

from msgspec import Struct

from sharpi.config import GenerationRequest
from sharpi.serve.chat.chat_call import AnswerShape
from sharpi.serve.chat.common_fields import read_model
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.request_fields import RequestFields
from sharpi.serve.openai.fields import (
    MAX_ANSWERS,
    MAX_LOGPROBS,
    read_generation,
    read_include_usage,
    read_max_tokens,
    read_shape,
)

_DEFAULT_TOKENS = 16  # OpenAI's default
_MAX_PROMPTS = 128


class CompletionsRequest(Struct, frozen=True):
    """Prompts and the way to send their answers."""

    prompts: tuple[list[int], ...]  # token ids
    echoes: tuple[str, ...]  # a text to put before the answers of each prompt, or ""
    request: GenerationRequest
    shape: AnswerShape
    num_answers: int  # for each prompt
    is_stream: bool
    includes_usage: bool  # a stream ends with its usage


def read_completions(body: object, host: ModelHost) -> CompletionsRequest:
    """Reads a body; raises ApiError if it is malformed, or has unknown or unsupported fields."""
    fields = RequestFields(body)
    read_model(fields, host)
    fields.only("suffix", ("",), "the model continues text and does not fill gaps")
    fields.only("store", (False,), "sharpi keeps no answers")
    prompts = _prompts(fields, host)
    num_answers = fields.integer("n", 1, MAX_ANSWERS) or 1
    fields.only("best_of", (num_answers,), "every answer is sent; leave it out")
    num_logprobs = _num_logprobs(fields)
    echo = fields.flag("echo") or False
    if echo and num_logprobs is not None:
        fields.fail("echo", "and 'logprobs' cannot be combined")
    max_tokens = read_max_tokens(fields, "max_tokens")
    request = read_generation(
        fields, host, _DEFAULT_TOKENS if max_tokens is None else max_tokens, num_logprobs
    )
    read = CompletionsRequest(
        tuple(ids for _, ids in prompts),
        tuple(text for text, _ in prompts) if echo else ("",) * len(prompts),
        request,
        read_shape(fields),
        num_answers,
        fields.flag("stream") or False,
        read_include_usage(fields),
    )
    fields.close()
    return read


def _num_logprobs(fields: RequestFields) -> int | None:
    """Reads the number of best tokens; llama.cpp's clients also send true or false."""
    if isinstance(fields.raw("logprobs"), bool):
        return 0 if fields.flag("logprobs") else None
    return fields.integer("logprobs", 0, MAX_LOGPROBS)


def _prompts(fields: RequestFields, host: ModelHost) -> list[tuple[str, list[int]]]:
    """Returns (text, ids) of each prompt: a string, ids, or a list of either."""
    value = fields.raw("prompt")
    if isinstance(value, str) or (isinstance(value, list) and value and _is_id(value[0])):
        value = [value]
    if not isinstance(value, list) or not value:
        fields.fail("prompt", "must be a string, a list of strings, of ids, or of lists of ids")
    if len(value) > _MAX_PROMPTS:
        fields.fail("prompt", f"must have {_MAX_PROMPTS} prompts at most")
    return [_prompt(fields, host, each) for each in value]


def _prompt(fields: RequestFields, host: ModelHost, value: Any) -> tuple[str, list[int]]:
    tokenizer = host.tokenizer
    if isinstance(value, str):
        ids = tokenizer.encode(value, add_bos=tokenizer.add_bos, parse_special=True)
    elif isinstance(value, list) and all(map(_is_id, value)):
        ids = value
    else:
        fields.fail("prompt", "must be a string, a list of strings, of ids, or of lists of ids")
    if not ids:
        fields.fail("prompt", "is empty, and the model has no BOS token")
    if not all(0 <= token_id < tokenizer.vocab_size for token_id in ids):
        fields.fail("prompt", f"has ids that are not from 0 to {tokenizer.vocab_size - 1}")
    return value if isinstance(value, str) else tokenizer.decode(ids), ids


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
