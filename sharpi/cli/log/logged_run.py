"""Keeps the question and the answer of `sharpi run` in the log."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sharpi.cli.log.conversation_log import ConversationLog

if TYPE_CHECKING:
    from sharpi.engine.generation import Generation


@contextmanager
def logged_run(
    generation: "Generation", question: str, system: str | None, model: Path, *, is_wanted: bool
) -> Iterator[None]:
    """Logs the question and the answer when the `with` block ends, even by an exception.

    The log is not opened earlier, so that the answer never waits for the file.
    """
    messages = [{"role": "user", "content": question}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    try:
        yield
    finally:
        if generation.text:
            messages.append({"role": "assistant", "content": generation.text})
        log = ConversationLog("run", is_wanted=is_wanted)
        log.write(messages, model)
        log.close()
