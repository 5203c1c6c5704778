"""Fits texts into the context: a long prompt is refused, or shifted as a full context is."""

from sharpi.errors import ContextFullError


def fitted(prompt: list[int], size: int, *, shifts: bool) -> list[int]:
    """Returns the prompt, shifted if need be; raises ContextFullError if that is not allowed."""
    if len(prompt) < size:
        return prompt
    if not shifts:
        raise ContextFullError(
            f"the prompt has {len(prompt)} tokens and the context {size};"
            " raise it with -c, or drop its beginning with --context-shift"
        )
    return shifted(prompt, size)


def shifted(tokens: list[int], size: int) -> list[int]:
    """Keeps of a full context the first token and the newest half.

    The half is computed anew, so the text continues exactly as from a fresh prompt of these tokens.
    """
    return [tokens[0], *tokens[len(tokens) - max(1, size // 2 - 1) :]]
