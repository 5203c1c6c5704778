"""SamplingBody: the sampling and reasoning parameters that all APIs share, with their ranges.

GenerationBody adds the parameters that OpenAI's APIs share.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from sharpi.config import GenerationRequest, SamplingParams
from sharpi.serve.chat.chat_call import AnswerShape
from sharpi.serve.chat.foreign_body import ForeignBody
from sharpi.serve.chat.shape_body import FormatBody, shape_of
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.body import Body, Ignored
from sharpi.serve.http.body_faults import raise_invalid

MAX_ANSWERS = 16
MAX_LOGPROBS = 20
MAX_TOKENS = 2**31 - 1
_MAX_SEED = 2**63 - 1
_MAX_BIASES = 1024

Probability = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
RepeatPenalty = Annotated[float, Meta(ge=0.01, le=10)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
Limit = Annotated[int, Meta(ge=-1, le=MAX_TOKENS)]  # a number of tokens; -1 for no limit
Count = Annotated[int, Meta(ge=1, le=MAX_ANSWERS)]
NumLogprobs = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]
Stops = Annotated[
    str | Annotated[list[str], Meta(max_length=16, extra={"items": "strings"})],
    Meta(extra={"must": "must be a string or a list of strings"}),
]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_RESERVED = ("messages", "tools", "documents", "add_generation_prompt")
# Chat templates with a reasoning effort know three levels: low, medium and high.
_EFFORTS: Mapping[Effort, str | None] = {
    "none": None,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}


class SamplingBody(ForeignBody):
    """Sampling, biases and limits of reasoning; names are OpenAI's, otherwise llama.cpp's."""

    model: str | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Meta(ge=-1, le=MAX_TOKENS)] | None = None  # -1 and 0 take all tokens
    min_p: Probability | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repeat_penalty: RepeatPenalty | None = None
    repetition_penalty: RepeatPenalty | None = None  # another name of repeat_penalty
    repeat_last_n: Annotated[int, Meta(ge=-1, le=MAX_TOKENS)] | None = None
    seed: Annotated[int, Meta(ge=-_MAX_SEED - 1, le=_MAX_SEED)] | None = None
    logit_bias: dict[str, Bias] | None = None  # by token id
    enable_thinking: bool | None = None
    thinking_budget: Annotated[int, Meta(ge=0, le=MAX_TOKENS)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    metadata: Ignored = None
    service_tier: Ignored = None
    cache_control: Ignored = None


def sampling_of(body: SamplingBody, defaults: SamplingParams) -> SamplingParams:
    """Returns the sampling parameters: the request's values, else the server's defaults."""
    other = body.repetition_penalty
    given: dict[str, Any] = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": None if body.top_k is None else max(body.top_k, 0),
        "min_p": body.min_p,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "repeat_penalty": other if body.repeat_penalty is None else body.repeat_penalty,
        "penalty_last_n": body.repeat_last_n,
        "seed": None if body.seed is None else body.seed & _MAX_SEED,
    }
    return replace(defaults, **{name: value for name, value in given.items() if value is not None})


def logit_bias_of(body: SamplingBody, vocab_size: int) -> tuple[tuple[int, float], ...]:
    """Returns (token id, bias) pairs, sorted by the text of the id; raises ApiError."""
    biases = body.logit_bias or {}
    if len(biases) > _MAX_BIASES:
        raise_invalid("logit_bias", f"must have {_MAX_BIASES} tokens at most")
    return tuple(_biases(biases, vocab_size))


def _biases(biases: dict[str, float], vocab_size: int) -> Iterator[tuple[int, float]]:
    for name in sorted(biases):
        is_id = name.isascii() and name.isdigit() and len(name) < 10 and int(name) < vocab_size
        if not is_id:
            message = f"must be the id of a token, from 0 to {vocab_size - 1}"
            raise_invalid(f"logit_bias.{name[:40]}", message)
        yield int(name), biases[name]


class Thinking(Struct, frozen=True):
    """The request's settings of reasoning: on or off, the budget, and template variables."""

    is_enabled: bool | None = None  # None leaves the decision to the template
    budget: int | None = None  # the most tokens of reasoning
    # Additional variables for the chat template.
    template_values: Mapping[str, Any] = field(default_factory=dict)


def thinking_of(body: SamplingBody, effort: Effort | None = None) -> Thinking:
    """Combines OpenAI's reasoning effort with the corresponding parameters of other servers."""
    values = dict(body.chat_template_kwargs or {})
    if any(name in values for name in _RESERVED):
        raise_invalid("chat_template_kwargs", f"must not set {', '.join(_RESERVED)}")
    said = values.pop("enable_thinking", None)
    if not isinstance(said, bool | None):
        raise_invalid("chat_template_kwargs", "must have a boolean as its enable_thinking")
    is_enabled = said if body.enable_thinking is None else body.enable_thinking
    if effort is not None:
        known = _EFFORTS[effort]
        if is_enabled is None and effort == "none":
            is_enabled = False
        values = ({"reasoning_effort": known} if known else {}) | values
    return Thinking(is_enabled, body.thinking_budget, values)


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
    grammar: str | None = None  # GBNF, or Lark in llguidance's dialect
    user: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_options: Ignored = None
    prompt_cache_retention: Ignored = None
    cache_prompt: Ignored = None


def generation_of(
    body: GenerationBody, host: ModelHost, max_tokens: int | None, num_logprobs: int | None
) -> GenerationRequest:
    """Builds the GenerationRequest from a body; raises ApiError for another model's name."""
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
    """Returns the first value that is not None, for a limit that has several names."""
    return next((limit for limit in limits if limit is not None), None)


def answer_shape(body: GenerationBody) -> AnswerShape:
    """Returns the required form of the answer, from `response_format` or `grammar`."""
    shape = AnswerShape()
    if body.response_format is not None:
        shape = shape_of(body.response_format, "response_format", nested=True)
    if body.grammar is None or (body.grammar == "" and shape.kind != "text"):
        return shape
    if shape.kind != "text":
        raise_invalid("grammar", "and 'response_format' exclude each other")
    return AnswerShape("grammar", body.grammar, "grammar")
