"""CompletionsBody: the type of the request body of /v1/completions."""

from typing import Annotated, Any

from msgspec import Meta

from sharpi.serve.chat.generation_body import Count, GenerationBody, NumLogprobs, StreamOptions
from sharpi.serve.http.body import only

MAX_PROMPTS = 128
_MUST = "must be a string, a list of strings, of ids, or of lists of ids"
Prompt = Annotated[str | list[str | int | list[Any]], Meta(extra={"must": _MUST})]


class CompletionsBody(GenerationBody, kw_only=True):
    """Prompts to continue."""

    prompt: Prompt
    n: Count | None = None
    best_of: int | None = None  # must equal n, because every answer is sent
    echo: bool | None = None
    logprobs: bool | NumLogprobs | None = None  # llama.cpp's clients also send true or false
    stream_options: StreamOptions | None = None
    suffix: Annotated[Any, only("", why="the model continues text and does not fill gaps")] = None
    store: Annotated[Any, only(False, why="sharpi keeps no answers")] = None
