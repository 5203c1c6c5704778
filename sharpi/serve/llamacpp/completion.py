"""/completion and /infill of llama.cpp's server: their bodies, and answers, whole or streamed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from sharpi.dialogue.answer_text import Text
from sharpi.engine.sampling.generation_state import PrefillProgress, Timings
from sharpi.engine.sampling.sampler import SampledToken
from sharpi.serve.chat.answer_reading import answer_events, collect
from sharpi.serve.chat.chat_call import AnswerDeltaOrEnd, AnswerEnd, EndReason
from sharpi.serve.chat.chat_model import Answering, ChatModel
from sharpi.serve.chat.generation_body import (
    MAX_TOKENS,
    REFUSED,
    Count,
    GenerationBody,
    Limit,
    NumLogprobs,
    answer_shape,
    first_limit,
    generation_of,
)
from sharpi.serve.chat.logprobs import listed_logprobs
from sharpi.serve.chat.prompt_tokens import PromptLimit, prompts_of
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Body, Events, Refusals, data_event
from sharpi.serve.http.errors import ApiError, raise_invalid
from sharpi.serve.openai.chat import progress_body
from sharpi.settings import GenerationRequest, SamplingParams

TokenId = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
Mixed = str | list[str | int]


class CompletionBody(GenerationBody, kw_only=True):
    """What to continue, and how."""

    refused: ClassVar[Refusals] = {k: why for k, why in REFUSED.items() if k != "n_probs"}

    prompt: str | list[str | int | list[Any]] | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    n: Count | None = None
    n_cmpl: Count | None = None  # another name of n
    n_probs: NumLogprobs | None = None
    max_completion_tokens: Limit | None = None
    # The samplers that act, as `top_k`; the order stays that of sharpi.
    samplers: list[str] | None = None
    id_slot: int | None = None  # repeated in the answer; sharpi chooses the slot itself
    return_tokens: bool | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    response_fields: list[str] | None = None  # all by default; `a/b` is field b of object a


class ExtraText(Body):
    """A text of the same project."""

    text: str
    filename: str | None = None


class InfillBody(CompletionBody, kw_only=True):
    """A gap to fill: the texts before and after it, and others of the project."""

    input_prefix: str
    input_suffix: str
    input_extra: list[ExtraText] | None = None


class TokenizeBody(Body):
    """A text to tokenize, or texts and ids to join."""

    content: Mixed
    add_special: bool | None = None  # begins with BOS if the model expects it
    parse_special: bool | None = None  # true unless set to false
    with_pieces: bool | None = None  # the text of each token, too


class DetokenizeBody(Body):
    """Token ids to turn into text, with control tokens shown."""

    tokens: list[TokenId]


_STOP_TYPES: dict[EndReason, str] = {"stop": "eos", "stop_string": "word"}
# The parameters of each sampler, with the values that make it have no effect.
_NEUTRAL: Mapping[str, Mapping[str, float]] = {
    "penalties": {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "temperature": {"temperature": 1.0},
}


class _Answer(Struct):
    """What was sent of one answer."""

    prompt: str
    num_prompt: int
    num_generated: int = 0
    has_line: bool = False


class Completion(Answering):
    """Continues a prompt, in the form of llama.cpp's server."""

    def __init__(self, body: CompletionBody, model: ChatModel, host: ModelHost) -> None:
        prompts = self._prompts(body, model.limit)
        limit = first_limit(body.n_predict, body.max_completion_tokens, body.max_tokens)
        request = generation_of(body, host, limit, body.n_probs or None)
        self._request = replace(request, sampling=_limited(request.sampling, body.samplers))
        count, shape = body.n_cmpl or body.n or 1, answer_shape(body)
        ids = [ids for _, ids in prompts]
        requests = model.completion_requests(ids, self._request, shape, count)
        if body.stream and body.return_progress:
            requests = [replace(each, wants_progress=True) for each in requests]
        super().__init__(host, requests, is_stream=body.stream)
        self._body, self._tokenizer = body, model.tokenizer
        self._answers = [_Answer(text, len(ids)) for text, ids in prompts for _ in range(count)]

    def _prompts(self, body: CompletionBody, limit: PromptLimit) -> list[tuple[str, list[int]]]:
        if body.prompt is None:
            raise_invalid("prompt", "is required")
        return prompts_of(body.prompt, limit)

    async def whole(self) -> Any:
        bodies = []
        for number, each in enumerate(await collect(self.host, self.prompt_requests)):
            assert each.end is not None
            self._answers[number].has_line = "\n" in each.text
            tokens = each.tokens if self._body.return_tokens else []
            whole = self._end(number, each.end) | self._content(each.text, tokens)
            bodies.append(self._selected(whole | self._probabilities(each.tokens)))
        return bodies[0] if len(bodies) == 1 else bodies

    def events(self) -> Events:
        def progress_event(progress: PrefillProgress) -> bytes:
            head = self._head(0) | self._content("", [])
            return data_event(head | {"prompt_progress": progress_body(progress)})

        return answer_events(
            self.host, self.prompt_requests, self._events_of, progress_event=progress_event
        )

    def _events_of(self, number: int, item: AnswerDeltaOrEnd) -> Iterator[bytes]:
        if isinstance(item, AnswerEnd):
            yield data_event(self._selected(self._end(number, item)))
            return
        text, answer = (
            item.event.text if isinstance(item.event, Text) else "",
            self._answers[number],
        )
        answer.num_generated += len(item.tokens)
        answer.has_line |= "\n" in text
        delta = self._head(number) | self._content(text, item.tokens)
        yield data_event(delta | self._probabilities(item.tokens))

    def _head(self, number: int) -> dict[str, Any]:
        answer = self._answers[number]
        return {
            "index": number,
            "stop": False,
            "id_slot": -1 if self._body.id_slot is None else self._body.id_slot,
            "tokens_predicted": answer.num_generated,
            "tokens_evaluated": answer.num_prompt,
        }

    def _content(self, text: str, tokens: Sequence[SampledToken]) -> dict[str, Any]:
        return {"content": text, "tokens": [token.id for token in tokens]}

    def _probabilities(self, tokens: Sequence[SampledToken]) -> dict[str, Any]:
        scored = [token for token in tokens if token.logprob is not None]
        listed = listed_logprobs(self._tokenizer, scored)
        return {"completion_probabilities": listed} if listed else {}

    def _end(self, number: int, end: AnswerEnd) -> dict[str, Any]:
        usage, answer = end.usage, self._answers[number]
        return {
            **self._head(number),
            **self._content("", []),
            "stop": True,
            "model": self.host.model_id,
            "tokens_predicted": usage.num_generated,
            "generation_settings": settings_body(self._request) | {"stream": bool(self.is_stream)},
            "prompt": answer.prompt,
            "has_new_line": answer.has_line,
            "truncated": end.reason == "context",
            "stop_type": _STOP_TYPES.get(end.reason, "limit"),
            "stopping_word": end.stop or "",
            "tokens_cached": usage.num_prompt + usage.num_generated,
            "timings": _timings_body(end.timings),
        }

    def _selected(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the fields that the client asked for, of a body that ends an answer."""
        paths = self._body.response_fields
        if not paths:
            return body
        missing = object()
        found = {}
        for path in paths:
            value: Any = body
            for name in path.split("/"):
                value = value.get(name, missing) if isinstance(value, dict) else missing
            if value is not missing:
                found[path] = value
        return found


class Infill(Completion):
    """Fills the gap between two texts, with a model that has tokens for it."""

    def _prompts(self, body: CompletionBody, limit: PromptLimit) -> list[tuple[str, list[int]]]:
        assert isinstance(body, InfillBody)
        tokenizer = limit.tokenizer
        role = tokenizer.role_id
        before, after, gap = role("fim_pre"), role("fim_suf"), role("fim_mid")
        if before is None or after is None or gap is None:
            raise ApiError(501, "the model has no tokens to fill gaps with", "not_supported")

        def encode(text: str) -> list[int]:
            return limit.encode(text, add_bos=False, parse_special=False)

        ids = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
        repository, file = role("fim_rep"), role("fim_sep")
        ids += [] if repository is None else [repository, *encode("myproject\n")]
        for extra in body.input_extra or ():
            name = f"{extra.filename or 'tmp'}\n"
            head = encode("\n\n--- snippet ---\n\n") if file is None else [file, *encode(name)]
            ids += [*head, *encode(extra.text)]
        ids += [] if file is None else [file, *encode("filename\n")]
        begun = body.prompt if isinstance(body.prompt, str) else ""
        ids += [before, *encode(body.input_prefix + begun), after, *encode(body.input_suffix), gap]
        return [(tokenizer.decode(ids, show_special=True), ids)]


def settings_body(request: GenerationRequest) -> dict[str, Any]:
    """Returns limits and sampling parameters under the names of llama.cpp's server."""
    sampling = asdict(request.sampling)
    return sampling | {
        "repeat_last_n": sampling.pop("penalty_last_n"),
        "n_predict": request.max_tokens,
        "max_tokens": request.max_tokens,
        "stop": list(request.stop),
        "ignore_eos": request.ignore_end,
        "n_probs": request.num_logprobs or 0,
        "logit_bias": [{"token": token, "bias": bias} for token, bias in request.logit_bias],
        "samplers": list(_NEUTRAL),
    }


def _limited(sampling: SamplingParams, samplers: list[str] | None) -> SamplingParams:
    """Returns the parameters, without effect where a sampler is not in the list."""
    if samplers is None:
        return sampling
    left_out = (values for name, values in _NEUTRAL.items() if name not in samplers)
    return replace(sampling, **{name: value for each in left_out for name, value in each.items()})


def _timings_body(timings: Timings) -> dict[str, Any]:
    prompt, predicted = timings.num_prompt_tokens, timings.num_generated_tokens
    prompt_ms, predicted_ms = 1000 * timings.prefill_seconds, 1000 * timings.decode_seconds
    body = {
        "cache_n": timings.num_cached_tokens,
        "prompt_n": prompt,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / max(prompt, 1),
        "prompt_per_second": timings.prompt_tokens_per_second,
        "predicted_n": predicted,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / max(predicted - 1, 1),
        "predicted_per_second": timings.decode_tokens_per_second,
    }
    drafts = timings.drafts
    if drafts is not None and drafts.num_checked:
        body |= {"draft_n": drafts.num_checked, "draft_n_accepted": drafts.num_accepted}
    return body
