"""Shortens llguidance's error messages to one line."""

import re

_MAX_LENGTH = 300
# Appended for developers: the parser's state, the whole grammar, a stack.
_APPENDIX = re.compile(r"<(?:state|grammar|backtrace|non-verbose)[/>].*", re.DOTALL)
_UNSUPPORTED = re.compile(r"Unimplemented keys: \[(.*)\]")
_REASONS = {
    "NoExtensionBias": "no text satisfies the grammar",
    "NoExtension": "no text satisfies the grammar",
}


def short_message(message: str) -> str:
    """Returns llguidance's message on one line, without parser state, in up to 300 characters."""
    line = " ".join(_APPENDIX.sub("", message).split())
    line = _REASONS.get(line, line) or "the grammar cannot be used"
    if line.startswith("oneOf constraints are not supported"):
        return "oneOf is supported only where no answer fits two of its branches; try anyOf"
    line = _UNSUPPORTED.sub(r"not supported in a JSON schema: \1", line)
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 3] + "..."
