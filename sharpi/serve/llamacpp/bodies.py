"""The types of the request bodies of llama.cpp's own paths."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from sharpi.serve.chat.generation_body import MAX_TOKENS, Count, GenerationBody, Limit, NumLogprobs
from sharpi.serve.chat.refused import REFUSED
from sharpi.serve.http.body import Body, Refusals

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
