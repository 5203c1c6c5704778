"""A conversation that goes on shows its end, and counts what it hides."""

import pytest

from sharpi.cli.chat.saved_conversation import show_messages


@pytest.mark.parametrize(
    ("num_lines", "last"), [(6, "line 5"), (7, "... 1 more line"), (9, "... 3 more lines")]
)
def test_hidden_lines_are_counted(
    num_lines: int, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\n".join(f"line {number}" for number in range(num_lines))
    show_messages([{"role": "assistant", "content": text}])
    assert capsys.readouterr().err.splitlines()[-1] == last
