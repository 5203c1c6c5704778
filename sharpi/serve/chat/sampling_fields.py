"""Reads the sampling parameters that all APIs share, with their ranges."""

from typing import Any

from msgspec.structs import replace

from sharpi.config import SamplingParams
from sharpi.serve.http.request_fields import RequestFields

_MAX_SEED = 2**63 - 1
_MAX_TOP_K = 2**31 - 1
_MAX_BIASES = 1024


def read_sampling(fields: RequestFields, defaults: SamplingParams) -> SamplingParams:
    """Returns the server's defaults with the request's values.

    Names are OpenAI's, then llama.cpp's.
    """
    given: dict[str, Any] = {
        "temperature": fields.number("temperature", 0, 2),
        "top_p": fields.number("top_p", 0, 1),
        "top_k": fields.integer("top_k", -1, _MAX_TOP_K),
        "min_p": fields.number("min_p", 0, 1),
        "presence_penalty": fields.number("presence_penalty", -2, 2),
        "frequency_penalty": fields.number("frequency_penalty", -2, 2),
        "repeat_penalty": _repeat_penalty(fields),
        "penalty_last_n": fields.integer("repeat_last_n", -1, _MAX_TOP_K),
        "seed": fields.integer("seed", -_MAX_SEED - 1, _MAX_SEED),
    }
    if given["seed"] is not None:
        given["seed"] &= _MAX_SEED
    if given["top_k"] == -1:
        given["top_k"] = 0
    return replace(defaults, **{name: value for name, value in given.items() if value is not None})


def read_logit_bias(fields: RequestFields, vocab_size: int) -> tuple[tuple[int, float], ...]:
    """Returns (token id, bias from -100 to 100) of an object whose keys are ids."""
    biases = fields.fields("logit_bias")
    if biases is None:
        return ()
    names = sorted(fields.mapping("logit_bias") or ())
    if len(names) > _MAX_BIASES:
        fields.fail("logit_bias", f"must have {_MAX_BIASES} tokens at most")
    return tuple((_token_id(biases, name, vocab_size), _bias(biases, name)) for name in names)


def _repeat_penalty(fields: RequestFields) -> float | None:
    """Reads llama.cpp's name of the penalty, or else the name of other servers."""
    penalty = fields.number("repeat_penalty", 0.01, 10)
    other = fields.number("repetition_penalty", 0.01, 10)
    return other if penalty is None else penalty


def _token_id(biases: RequestFields, name: str, vocab_size: int) -> int:
    if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < vocab_size):
        biases.fail(name[:40], f"must be the id of a token, from 0 to {vocab_size - 1}")
    return int(name)


def _bias(biases: RequestFields, name: str) -> float:
    return biases.number(name, -100, 100) or 0.0
