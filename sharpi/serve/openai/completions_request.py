"""Translates the body of /v1/completions to tokenized prompts and a generation request."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from sharpi.config import GenerationRequest
from sharpi.engine.sampling.text_delta import SampledToken
from sharpi.serve.chat.chat_call import AnswerShape
from sharpi.serve.chat.generation_body import answer_shape, first_limit, generation_of
from sharpi.serve.chat.prompt_tokens import PromptLimit
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.body_faults import raise_invalid
from sharpi.serve.openai.completions_body import MAX_PROMPTS, CompletionsBody

_DEFAULT_TOKENS = 16  # OpenAI's default


class CompletionsRequest(Struct, frozen=True):
    """The prompts of a /v1/completions request, and how their answers are sent."""

    prompts: tuple[list[int], ...]  # token ids
    echoes: tuple[str, ...]  # for each prompt, the text to put before its answers, or ""
    request: GenerationRequest
    shape: AnswerShape
    num_answers: int  # for each prompt
    is_stream: bool
    includes_usage: bool  # a stream ends with its usage
    # For each prompt to echo, its tokens with log probabilities; empty until they are computed.
    scored: tuple[Sequence[SampledToken], ...] = ()

    @property
    def wants_scores(self) -> bool:
        """True if the prompts need log probabilities, because they are echoed with them."""
        return any(self.echoes) and self.request.num_logprobs is not None


def completions_request(
    body: CompletionsBody, host: ModelHost, limit: PromptLimit
) -> CompletionsRequest:
    """Translates the body to a CompletionsRequest; tokenizes its prompts, which may be slow.

    Raises ApiError and ContextFullError.
    """
    num_answers = body.n or 1
    if body.best_of not in (None, num_answers):
        raise_invalid("best_of", "cannot be honoured: every answer is sent; leave it out")
    if body.logprobs is None or isinstance(body.logprobs, bool):
        num_logprobs = 0 if body.logprobs else None
    else:
        num_logprobs = body.logprobs
    max_tokens = first_limit(body.max_tokens, body.n_predict, _DEFAULT_TOKENS)
    request = generation_of(body, host, max_tokens, num_logprobs)
    prompts = [_prompt(each, limit) for each in _prompts(body.prompt)]
    options = body.stream_options
    return CompletionsRequest(
        tuple(ids for _, ids in prompts),
        tuple(text for text, _ in prompts) if body.echo else ("",) * len(prompts),
        request,
        answer_shape(body),
        num_answers,
        body.stream or False,
        bool(options is not None and options.include_usage),
    )


def _prompts(value: Any) -> list[str | list[int]]:
    """Returns a list of prompts, each a string or a list of token ids; raises ApiError."""
    if isinstance(value, str) or (value and isinstance(value[0], int)):
        value = [value]
    if not value:
        raise_invalid("prompt", "must be a string, a list of strings, of ids, or of lists of ids")
    if len(value) > MAX_PROMPTS:
        raise_invalid("prompt", f"must have {MAX_PROMPTS} prompts at most")
    return list(value)


def _prompt(value: str | list[Any], limit: PromptLimit) -> tuple[str, list[int]]:
    tokenizer = limit.tokenizer
    if isinstance(value, str):
        ids = limit.encode(value, add_bos=tokenizer.add_bos)
    elif isinstance(value, list) and all(isinstance(each, int) for each in value):
        ids = value
    else:
        raise_invalid("prompt", "must be a string, a list of strings, of ids, or of lists of ids")
    if not ids:
        raise_invalid("prompt", "is empty, and the model has no BOS token")
    if not all(0 <= token_id < tokenizer.vocab_size for token_id in ids):
        raise_invalid("prompt", f"has ids that are not from 0 to {tokenizer.vocab_size - 1}")
    return value if isinstance(value, str) else tokenizer.decode(ids), ids
