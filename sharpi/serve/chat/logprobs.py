"""The log probabilities of tokens, in the forms of the APIs."""

from collections.abc import Iterable
from typing import Any

from sharpi.engine.sampling.sampler import SampledToken
from sharpi.tokenizer.tokenizer import Tokenizer

_LEAST = -9999.0  # OpenAI's value for a token that is impossible


def chat_logprobs(tokenizer: Tokenizer, tokens: Iterable[SampledToken]) -> dict[str, Any]:
    """Returns the `logprobs` object of a chat choice: text, bytes and alternatives per token."""
    return {"content": listed_logprobs(tokenizer, tokens), "refusal": None}


def listed_logprobs(tokenizer: Tokenizer, tokens: Iterable[SampledToken]) -> list[dict[str, Any]]:
    """Returns an entry for each token, in the form of /v1/chat/completions and /v1/responses."""
    return [
        _entry(tokenizer, token.id, token.logprob)
        | {"top_logprobs": [_entry(tokenizer, *each) for each in token.alternatives]}
        for token in tokens
    ]


class LegacyLogprobs:
    """Builds the `logprobs` objects of one completion; text offsets continue between calls."""

    def __init__(self, tokenizer: Tokenizer, offset: int = 0) -> None:
        self._tokenizer, self._offset = tokenizer, offset

    def of(self, tokens: Iterable[SampledToken]) -> dict[str, Any]:
        """Returns the four lists for the next tokens: texts, logprobs, alternatives and offsets."""
        entry: dict[str, Any] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for token in tokens:
            text = _text(self._tokenizer, token.id)
            best = token.alternatives
            entry["tokens"].append(text)
            # The first token of an echoed prompt, which nothing precedes.
            is_first = token.logprob is None
            entry["token_logprobs"].append(None if is_first else _finite(token.logprob))
            entry["top_logprobs"].append(None if is_first else self._best(best))
            entry["text_offset"].append(self._offset)
            self._offset += len(text)
        return entry

    def _best(self, best: Iterable[tuple[int, float]]) -> dict[str, float]:
        return {_text(self._tokenizer, token_id): _finite(logprob) for token_id, logprob in best}


def _entry(tokenizer: Tokenizer, token_id: int, logprob: float | None) -> dict[str, Any]:
    return {
        "id": token_id,
        "token": _text(tokenizer, token_id),
        "logprob": _finite(logprob),
        "bytes": list(tokenizer.token_bytes(token_id)),
    }


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.token_bytes(token_id).decode("utf-8", "replace")


def _finite(logprob: float | None) -> float:
    """Returns the logprob, at least -9999, because JSON has no infinity."""
    return _LEAST if logprob is None else max(logprob, _LEAST)
