"""llguidance's error messages as one line."""

import pytest

from sharpi.constraints.grammar_error import short_message


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("two\n  lines", "two lines"),
        ("short <state>\nTokens: ...\n</state>", "short"),
        ("panic: range <backtrace>\n 0: <unknown>", "panic: range"),
        ("NoExtensionBias\n<non-verbose/>", "no text satisfies the grammar"),
        (
            "oneOf constraints are not supported. Enable 'coerce_one_of' option",
            "oneOf is supported only where no answer fits two of its branches; try anyOf",
        ),
        ("", "the grammar cannot be used"),
        ('Unimplemented keys: ["not", "if"]', 'not supported in a JSON schema: "not", "if"'),
    ],
)
def test_one_line(message: str, line: str) -> None:
    assert short_message(message) == line


def test_a_long_one_is_cut() -> None:
    assert len(short_message("x" * 1000)) == 300
