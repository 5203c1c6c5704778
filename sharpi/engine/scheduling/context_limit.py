"""ContextLimit: a text that outgrows the context is refused, ends, or loses its beginning."""

from sharpi.engine.sampling.text_delta import TextDelta
from sharpi.engine.scheduling.request import Request
from sharpi.errors import ContextFullError


class ContextLimit:
    """A context of `size` tokens; with `shifts` a full one keeps its first token and newest half.

    The half is computed anew, so the text continues exactly as from a fresh prompt of these tokens.
    """

    def __init__(self, size: int, *, shifts: bool) -> None:
        self._size, self._shifts = size, shifts

    def fitted(self, prompt: list[int]) -> list[int]:
        """Returns the prompt, shortened if need be; raises ContextFullError without `shifts`."""
        if len(prompt) < self._size:
            return prompt
        if not self._shifts:
            raise ContextFullError(
                f"the prompt has {len(prompt)} tokens and the context {self._size};"
                " raise it with -c, or drop its beginning with --context-shift"
            )
        return self._shifted(prompt)

    def checked(self, request: Request, delta: TextDelta) -> TextDelta:
        """Returns the delta of a request's new token; in a full context, shifts or ends it."""
        if len(request.tokens) <= self._size:
            return delta
        if not self._shifts:
            return TextDelta(
                delta.text + request.generation_state.end("context").text, delta.tokens
            )
        request.tokens = self._shifted(request.tokens)
        request.release()
        return delta

    def _shifted(self, tokens: list[int]) -> list[int]:
        return [tokens[0], *tokens[len(tokens) - max(1, self._size // 2 - 1) :]]
