"""SamplingBody: the sampling and reasoning parameters that all APIs share, with their ranges.

GenerationBody adds the parameters that OpenAI's APIs share.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from msgspec.structs import replace

from sharpi.serve.chat.chat_call import AnswerShape, Thinking
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Body, Refusals
from sharpi.serve.http.errors import raise_invalid
from sharpi.settings import GenerationRequest, SamplingParams


def _all(why: str, **neutral: tuple[object, ...]) -> Refusals:
    return {name: (values, why) for name, values in neutral.items()}


# Parameters of OpenAI, llama.cpp, vLLM, text-generation-inference and OpenRouter.
REFUSED: Refusals = {
    **_all(
        "sharpi does not have this sampler",
        mirostat=(0,),
        mirostat_mode=(0,),
        typical_p=(1, 0),
        tfs_z=(1,),
        tfs=(1,),
        top_a=(0,),
        top_n_sigma=(-1, 0),
        dynatemp_range=(0,),
        dynamic_temperature=(False,),
        smoothing_factor=(0,),
        xtc_probability=(0,),
        dry_multiplier=(0,),
        epsilon_cutoff=(0,),
        eta_cutoff=(0,),
        penalty_alpha=(0,),
        guidance_scale=(1,),
        no_repeat_ngram_size=(0,),
        encoder_repetition_penalty=(1,),
        use_beam_search=(False,),
    ),
    **_all("set 'temperature' to 0", do_sample=(True,)),
    **_all("use 'logit_bias'", bad_words=([],), allowed_token_ids=([],)),
    **_all("an answer ends where the model ends it", min_tokens=(0,)),
    **_all("use 'stop'", stop_token_ids=([],)),
    **_all("a prompt that is too long is refused", truncate_prompt_tokens=(-1, 0)),
    **_all(
        "use 'response_format' or 'grammar'",
        guided_json=({}, ""),
        guided_regex=("",),
        guided_choice=([],),
        guided_grammar=("",),
        structured_outputs=({},),
        structural_tag=("",),
    ),
    **_all("use 'logprobs'", n_probs=(0,), top_n_tokens=(0,), prompt_logprobs=(0,)),
    **_all("use 'echo'", return_full_text=(False,)),
    **_all("sharpi has no adapters", lora=([],)),
    **_all("put them into the messages", documents=([],)),
    **_all("the model's own template is used", chat_template=("",)),
    **_all("the model continues text and does not fill gaps", suffix=("",)),
    **_all("the model writes text only", modalities=(["text"],)),
    **_all("use 'tools'", functions=([],)),
    **_all(
        "sharpi keeps no answers; send the conversation",
        background=(False,),
        previous_response_id=("",),
        conversation=(),
    ),
}


MAX_ANSWERS = 16
MAX_LOGPROBS = 20
MAX_TOKENS = 2**31 - 1
_MAX_SEED = 2**63 - 1
_MAX_BIASES = 1024
_FORBIDS = -100.0  # the least bias, as for OpenAI

Probability = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
RepeatPenalty = Annotated[float, Meta(ge=0.01, le=10)]
Bias = Annotated[float, Meta(ge=-100, le=100)] | bool
Limit = Annotated[int, Meta(ge=-1, le=MAX_TOKENS)]  # a number of tokens; -1 for no limit
Count = Annotated[int, Meta(ge=1, le=MAX_ANSWERS)]
NumLogprobs = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]
Stops = str | Annotated[list[str], Meta(max_length=256)]
Schema = dict[str, Any] | bool
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


class SamplingBody(Body):
    """Sampling, biases and limits of reasoning; names are OpenAI's, otherwise llama.cpp's."""

    refused: ClassVar[Refusals] = REFUSED

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
    # By token id, or pairs of an id and its bias; false forbids the token.
    logit_bias: dict[str, Bias] | list[tuple[int, Bias]] | None = None
    enable_thinking: bool | None = None
    thinking_budget: Annotated[int, Meta(ge=0, le=MAX_TOKENS)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


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
        # -1 is random, as for llama.cpp.
        "seed": None if body.seed in (None, -1) else body.seed & _MAX_SEED,
    }
    return replace(defaults, **{name: value for name, value in given.items() if value is not None})


def logit_bias_of(body: SamplingBody, vocab_size: int) -> tuple[tuple[int, float], ...]:
    """Returns (token id, bias) pairs, sorted by the text of the id; raises ApiError."""
    given = body.logit_bias or {}
    biases = given if isinstance(given, dict) else {str(token): bias for token, bias in given}
    if len(biases) > _MAX_BIASES:
        raise_invalid("logit_bias", f"must have {_MAX_BIASES} tokens at most")
    return tuple(_biases(biases, vocab_size))


def _biases(biases: Mapping[str, float | bool], vocab_size: int) -> Iterator[tuple[int, float]]:
    for name in sorted(biases):
        is_id = name.isascii() and name.isdigit() and len(name) < 10 and int(name) < vocab_size
        if not is_id:
            message = f"must be the id of a token, from 0 to {vocab_size - 1}"
            raise_invalid(f"logit_bias.{name[:40]}", message)
        yield int(name), _FORBIDS if biases[name] is False else float(biases[name])


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


class NamedSchema(Body):
    """The schema of chat completions."""

    schema: Schema | None = None


class FormatBody(Body):
    """Text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"] | None = None
    json_schema: NamedSchema | None = None
    schema: Schema | None = None


class StreamOptions(Body):
    """The options of a stream; `include_usage` adds the usage at its end."""

    include_usage: bool | None = None


class GenerationBody(SamplingBody):
    """Limits, stop strings and the form of the answer."""

    max_tokens: Limit | None = None
    n_predict: Limit | None = None
    stop: Stops | None = None
    ignore_eos: bool | None = None
    response_format: FormatBody | None = None
    json_schema: Schema | None = None  # llama.cpp's name of the schema of the answer
    grammar: str | None = None  # GBNF, or Lark in llguidance's dialect
    stream_options: StreamOptions | None = None

    @property
    def includes_usage(self) -> bool:
        """True if a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


def generation_of(
    body: GenerationBody, host: ModelHost, max_tokens: int | None, num_logprobs: int | None
) -> GenerationRequest:
    """Builds the GenerationRequest from a body; raises ApiError for another model's name."""
    if name := (body.model or "").strip():
        host.require_model(name)
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return GenerationRequest(
        max_tokens=-1 if max_tokens is None else max_tokens,
        stop=tuple(text for text in stop if text),
        ignore_end=body.ignore_eos or False,
        sampling=sampling_of(body, host.settings.sampling),
        logit_bias=logit_bias_of(body, host.tokenizer.vocab_size),
        num_logprobs=num_logprobs,
    )


def left_out(kinds: Sequence[str]) -> tuple[str, ...]:
    """Returns the note on tools of these types, which only other servers run."""
    names = ", ".join(sorted({kind[:40] for kind in kinds}))
    return (f"tools that sharpi does not run were left out of a request: {names}",) if kinds else ()


def first_limit(*limits: int | None) -> int | None:
    """Returns the first value that is not None, for a limit that has several names."""
    return next((limit for limit in limits if limit is not None), None)


def answer_shape(body: GenerationBody) -> AnswerShape:
    """Returns the form that the answer must have: `response_format`, `json_schema` or `grammar`."""
    shape = AnswerShape()
    if body.response_format is not None:
        shape = shape_of(body.response_format, "response_format")
    if body.json_schema is not None and shape.kind == "text":
        shape = AnswerShape("json_schema", body.json_schema, "json_schema")
    if not body.grammar:
        return shape
    if shape.kind != "text":
        raise_invalid("grammar", "and 'response_format' exclude each other")
    return AnswerShape("grammar", body.grammar, "grammar")


def shape_of(form: FormatBody, path: str) -> AnswerShape:
    """Converts a format, whose schema may be in `schema` or in `json_schema.schema`."""
    if form.type in (None, "text"):
        return AnswerShape()
    nested = form.json_schema
    schema = form.schema if nested is None or nested.schema is None else nested.schema
    if schema is not None:  # llama.cpp's server accepts a schema with json_object, too
        return AnswerShape("json_schema", schema, path)
    if form.type == "json_schema":
        raise_invalid(f"{path}.schema", "is required")
    return AnswerShape("json_object", None, path)
