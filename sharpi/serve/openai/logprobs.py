"""Log probabilities of tokens, as chat completions and as legacy completions report them."""

from collections.abc import Iterable
from typing import Any

from sharpi.engine.sampling.text_delta import SampledToken
from sharpi.tokenizer.tokenizer import Tokenizer

_LEAST = -9999.0  # what OpenAI says of a token that cannot come


def chat_logprobs(tokenizer: Tokenizer, tokens: Iterable[SampledToken]) -> list[dict[str, Any]]:
    """The "content" of chat logprobs: each token with its text, bytes and the best ones."""
    return [
        _entry(tokenizer, token.id, token.logprob)
        | {"top_logprobs": [_entry(tokenizer, *each) for each in token.alternatives]}
        for token in tokens
    ]


class LegacyLogprobs:
    """Those of one completion, whose texts' places in the answer go on from call to call."""

    def __init__(self, tokenizer: Tokenizer, offset: int = 0) -> None:
        self._tokenizer, self._offset = tokenizer, offset

    def of(self, tokens: Iterable[SampledToken]) -> dict[str, Any]:
        """Four lists in step, of the next tokens."""
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
            entry["token_logprobs"].append(_finite(token.logprob))
            entry["top_logprobs"].append(
                {_text(self._tokenizer, token_id): _finite(logprob) for token_id, logprob in best}
            )
            entry["text_offset"].append(self._offset)
            self._offset += len(text)
        return entry


def _entry(tokenizer: Tokenizer, token_id: int, logprob: float | None) -> dict[str, Any]:
    return {
        "token": _text(tokenizer, token_id),
        "logprob": _finite(logprob),
        "bytes": list(tokenizer.token_bytes(token_id)),
    }


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.token_bytes(token_id).decode("utf-8", "replace")


def _finite(logprob: float | None) -> float:
    """JSON has no infinity."""
    return _LEAST if logprob is None else max(logprob, _LEAST)
