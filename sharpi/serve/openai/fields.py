"""Reads the fields that OpenAI's APIs share: limits, stop strings and the form of the answer."""

from sharpi.config import GenerationRequest
from sharpi.serve.chat.chat_call import AnswerShape
from sharpi.serve.chat.common_fields import shape_of
from sharpi.serve.chat.sampling_fields import read_logit_bias, read_sampling
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.request_fields import RequestFields

MAX_ANSWERS = 16
MAX_LOGPROBS = 20
_MAX_STOPS = 16
_MAX_TOKENS = 2**31 - 1
# Fields without effect on an answer, or only on OpenAI's billing, caching and monitoring.
_HARMLESS = (
    "user",
    "metadata",
    "safety_identifier",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "cache_prompt",
)


def read_max_tokens(fields: RequestFields, *names: str) -> int | None:
    """Reads a limit by several names; the first that is given counts."""
    limits = [fields.integer(name, 0, _MAX_TOKENS) for name in names]
    return next((limit for limit in limits if limit is not None), None)


def read_generation(
    fields: RequestFields, host: ModelHost, max_tokens: int | None, num_logprobs: int | None
) -> GenerationRequest:
    """Reads sampling, biases and stop strings, and ignores fields without effect."""
    fields.ignore(*_HARMLESS)
    return GenerationRequest(
        max_tokens=-1 if max_tokens is None else max_tokens,
        stop=fields.texts("stop", _MAX_STOPS),
        ignore_end=fields.flag("ignore_eos") or False,
        sampling=read_sampling(fields, host.settings.sampling),
        logit_bias=read_logit_bias(fields, host.tokenizer.vocab_size),
        num_logprobs=num_logprobs,
    )


def read_include_usage(fields: RequestFields) -> bool:
    """Returns whether a stream ends with its usage."""
    options = fields.fields("stream_options")
    if options is None:
        return False
    options.ignore("include_obfuscation", "continuous_usage_stats")
    include = options.flag("include_usage")
    options.close()
    return bool(include)


def read_shape(fields: RequestFields) -> AnswerShape:
    """Reads the form of the answer: "response_format", or sharpi's own field "grammar"."""
    grammar = fields.text("grammar")
    form = fields.fields("response_format")
    shape = AnswerShape() if form is None else shape_of(form, nested=True)
    if grammar is None:
        return shape
    if shape.kind != "text":
        fields.fail("grammar", "and 'response_format' exclude each other")
    return AnswerShape("grammar", grammar, fields.path_of("grammar"))
