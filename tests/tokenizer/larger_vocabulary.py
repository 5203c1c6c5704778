"""Vocabularies with a few more tokens."""

from typing import Any

from msgspec.structs import replace

from sharpi.tokenizer.vocabulary import Vocabulary


def with_tokens(vocabulary: Vocabulary, *texts: str, kind: int = 1, **changes: Any) -> Vocabulary:
    """The vocabulary with more tokens at its end."""
    extra = {
        "tokens": [*vocabulary.tokens, *texts],
        "kinds": [*vocabulary.kinds, *[kind] * len(texts)],
    }
    if vocabulary.scores:
        extra["scores"] = [*vocabulary.scores, *[0.0] * len(texts)]
    return replace(vocabulary, **extra, **changes)
