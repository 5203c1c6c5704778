"""Shows an answer while it streams: words wrapped, Markdown rendered, reasoning folded.

Complete blocks of Markdown are printed once. Only the last, incomplete block is redrawn, with as
many lines as fit on the screen. If stdout is no terminal, the text is printed unchanged.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from sharpi.cli.chat.reply import ReasoningStyle, collect, reasoning_splitter, stream
from sharpi.cli.output.terminal import can_draw, strip_controls
from sharpi.cli.termination import uninterrupted
from sharpi.system.process import notes_after_answer

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.live import Live
    from rich.segment import Segment

    from sharpi.engine.engine import Generation


_REFRESH_SECONDS, _MOST_SECONDS = 0.08, 0.5  # seconds between two drawings, at least and at most
# Decoding waits during a drawing, so the pause after it is at least this many times as long.
_PAUSE_FACTOR = 10
_REASONING_LINES = 4  # lines shown while the model reasons
_FENCES = ("```", "~~~")


@notes_after_answer()
def show_answer(generation: "Generation", prompt: str, is_plain: bool) -> None:
    """Shows the answer as it arrives, until it ends or Ctrl-C ends it; as Markdown unless plain."""
    if not can_draw(sys.stdout):
        stream(generation, ReasoningStyle(prompt))
        return
    view = AnswerView(prompt, is_plain)
    try:
        collect(generation, view.feed)
    finally:
        # The terminal may have been closed.
        with suppress(OSError, KeyboardInterrupt), uninterrupted():
            view.end()


class AnswerView:
    """Renders one answer on the terminal; callers must call `end` after the last piece."""

    def __init__(self, prompt: str, is_plain: bool) -> None:
        from rich.console import Console

        self._console = Console(file=sys.stdout, highlight=False)
        self._splitter = reasoning_splitter(prompt)
        self._is_plain = is_plain
        self._live: Live | None = None
        self._reasoning, self._pending = "", ""
        self._start = self._drawn = time.monotonic()
        self._pause = _REFRESH_SECONDS  # seconds before the next drawing
        self._is_folded = self._has_blocks = False

    def feed(self, piece: str) -> None:
        """Adds a piece of the streamed answer, and redraws if enough time has passed."""
        for kind, text in self._splitter.feed(piece):
            self._add(kind, strip_controls(text))
        if time.monotonic() - self._drawn > self._pause:
            with uninterrupted():
                self._draw()

    def end(self) -> None:
        """Prints the text not printed yet, and an empty line."""
        for kind, text in self._splitter.flush():
            self._add(kind, strip_controls(text))
        if self._reasoning and not self._is_folded:
            self._fold()
        self._print(self._pending)
        if self._live is not None:
            self._live.stop()
        if self._has_blocks:
            print(flush=True)

    def _add(self, kind: str, text: str) -> None:
        if kind == "reasoning":
            self._reasoning += text
            return
        if self._reasoning and not self._is_folded and text.strip():
            self._fold()
        self._pending += text
        done, self._pending = split_blocks(self._pending)
        self._print(done)

    def _fold(self) -> None:
        """Replaces the reasoning on the screen by one line with its duration and length."""
        from rich.text import Text

        self._is_folded = True
        seconds, words = time.monotonic() - self._start, len(self._reasoning.split())
        line = f"Reasoned for {seconds:.0f} s ({words} words); /reasoning shows it."
        self._show(Text(line, style="dim italic"))

    def _print(self, text: str) -> None:
        """Prints complete blocks, which are not redrawn."""
        if text.strip():
            with uninterrupted():
                self._show(_Lines(self._rendered(text.strip("\n"))))

    def _show(self, what: "RenderableType") -> None:
        """Erases the block that is being redrawn, then prints an empty line and `what`."""
        self._erase()
        if self._has_blocks:
            self._console.print()
        self._console.print(what, end="" if isinstance(what, _Lines) else "\n")
        self._has_blocks = True

    def _erase(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> None:
        """Draws the incomplete block, or the last lines of the reasoning."""
        from rich.live import Live

        self._drawn = time.monotonic()
        if self._live is None:
            self._live = Live(
                console=self._console,
                transient=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(_Lines(*self._growing(), is_apart=self._has_blocks), refresh=True)
        start, self._drawn = self._drawn, time.monotonic()
        pause = min(_MOST_SECONDS, _PAUSE_FACTOR * (self._drawn - start))
        self._pause = max(_REFRESH_SECONDS, pause)

    def _growing(self) -> "tuple[RenderableType, int]":
        from rich.text import Text

        if self._reasoning and not self._is_folded:
            return Text(self._reasoning.strip("\n"), style="dim italic"), _REASONING_LINES
        return self._rendered(self._pending.strip("\n")), self._console.height - 3

    def _rendered(self, text: str) -> "RenderableType":
        from rich.markdown import Markdown
        from rich.text import Text

        if self._is_plain:
            return Text(text)
        return Markdown(text, code_theme="ansi_dark", hyperlinks=False)


class _Lines:
    """The last `most` lines of `content` without empty ones around; one before with `is_apart`."""

    def __init__(
        self, content: "RenderableType", most: int = 1_000_000, *, is_apart: bool = False
    ) -> None:
        self._content, self._most, self._is_apart = content, max(1, most), is_apart

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[Segment]":
        from rich.segment import Segment

        if self._is_apart:
            yield Segment.line()
        lines = console.render_lines(self._content, options, pad=False)
        full = [number for number, line in enumerate(lines) if any(s.text.strip() for s in line)]
        if full:
            for line in lines[full[0] : full[-1] + 1][-self._most :]:
                yield from line
                yield Segment.line()


def split_blocks(text: str) -> tuple[str, str]:
    """Splits Markdown after its last complete block; empty lines outside code fences end one."""
    end, fence, position = 0, "", 0
    for line in text.splitlines(keepends=True):
        position += len(line)
        start = line.lstrip()[:3]
        if fence:
            if start == fence and line.endswith("\n"):
                fence, end = "", position
        elif start in _FENCES:
            fence = start
        elif not line.strip() and line.endswith("\n"):
            end = position
    return text[:end], text[end:]
