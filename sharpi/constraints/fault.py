"""What llguidance complains of, as one line."""

import re

_MAX_LENGTH = 300
# Appended for developers: the parser's state, the whole grammar, a stack.
_APPENDIX = re.compile(r"<(?:state|grammar|backtrace|non-verbose)[/>].*", re.DOTALL)
_REASONS = {
    "NoExtensionBias": "no text satisfies the grammar",
    "NoExtension": "no text satisfies the grammar",
}


def worded(complaint: str) -> str:
    """The complaint without line breaks and state, at most 300 characters."""
    line = " ".join(_APPENDIX.sub("", complaint).split())
    line = _REASONS.get(line, line) or "the grammar cannot be used"
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 3] + "..."
