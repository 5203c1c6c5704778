"""What requests of OpenAI's APIs have in common: lengths, stops, the answer's form."""

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
# What changes nothing about an answer, or only what OpenAI bills, keeps and watches.
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
    """The first that is given of several names of one limit."""
    limits = [fields.integer(name, 0, _MAX_TOKENS) for name in names]
    return next((limit for limit in limits if limit is not None), None)


def read_generation(
    fields: RequestFields, host: ModelHost, max_tokens: int | None, num_logprobs: int | None
) -> GenerationRequest:
    """Sampling, biases and stops; also ignores what does no harm."""
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
    """Whether a stream is to end with its usage."""
    options = fields.fields("stream_options")
    if options is None:
        return False
    options.ignore("include_obfuscation", "continuous_usage_stats")
    include = options.flag("include_usage")
    options.close()
    return bool(include)


def read_shape(fields: RequestFields) -> AnswerShape:
    """The form of "response_format", or that of the further field "grammar"."""
    grammar = fields.text("grammar")
    form = fields.fields("response_format")
    shape = AnswerShape() if form is None else shape_of(form, nested=True)
    if grammar is None:
        return shape
    if shape.kind != "text":
        fields.fail("grammar", "and 'response_format' exclude each other")
    return AnswerShape("grammar", grammar, fields.path_of("grammar"))
