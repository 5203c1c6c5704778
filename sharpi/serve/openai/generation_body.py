"""GenerationBody: the parameters that OpenAI's APIs share."""

from typing import Annotated

from msgspec import Meta

from sharpi.config import GenerationRequest
from sharpi.serve.chat.chat_call import AnswerShape
from sharpi.serve.chat.sampling_body import (
    MAX_TOKENS,
    SamplingBody,
    logit_bias_of,
    sampling_of,
)
from sharpi.serve.chat.shape_body import FormatBody, shape_of
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.body import Body, Ignored, fail

MAX_ANSWERS = 16
MAX_LOGPROBS = 20
Limit = Annotated[int, Meta(ge=-1, le=MAX_TOKENS)]  # of tokens; -1 is none
Count = Annotated[int, Meta(ge=1, le=MAX_ANSWERS)]
NumLogprobs = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]
Stops = Annotated[
    str | Annotated[list[str], Meta(max_length=16, extra={"items": "strings"})],
    Meta(extra={"must": "must be a string or a list of strings"}),
]


class StreamOptions(Body):
    """The options of a stream; `include_usage` adds the usage at its end."""

    include_usage: bool | None = None
    include_obfuscation: Ignored = None
    continuous_usage_stats: Ignored = None


class GenerationBody(SamplingBody):
    """Limits, stop strings and the form of the answer."""

    max_tokens: Limit | None = None
    n_predict: Limit | None = None
    stop: Stops | None = None
    ignore_eos: bool | None = None
    response_format: FormatBody | None = None
    grammar: str | None = None  # GBNF, or llguidance's Lark
    user: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_options: Ignored = None
    prompt_cache_retention: Ignored = None
    cache_prompt: Ignored = None


def generation_of(
    body: GenerationBody, host: ModelHost, max_tokens: int | None, num_logprobs: int | None
) -> GenerationRequest:
    """Returns the limits, sampling, biases and stop strings; refuses another model's name."""
    if body.model is not None:
        host.require_model(body.model)
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return GenerationRequest(
        max_tokens=-1 if max_tokens is None else max_tokens,
        stop=tuple(text for text in stop if text),
        ignore_end=body.ignore_eos or False,
        sampling=sampling_of(body, host.settings.sampling),
        logit_bias=logit_bias_of(body, host.tokenizer.vocab_size),
        num_logprobs=num_logprobs,
    )


def first_limit(*limits: int | None) -> int | None:
    """Returns the first limit that is not None; they are values of one limit by several names."""
    return next((limit for limit in limits if limit is not None), None)


def answer_shape(body: GenerationBody) -> AnswerShape:
    """Returns the form of the answer: "response_format", or sharpi's own parameter "grammar"."""
    shape = AnswerShape()
    if body.response_format is not None:
        shape = shape_of(body.response_format, "response_format", nested=True)
    if body.grammar is None or (body.grammar == "" and shape.kind != "text"):
        return shape
    if shape.kind != "text":
        fail("grammar", "and 'response_format' exclude each other")
    return AnswerShape("grammar", body.grammar, "grammar")
