"""Streams an answer to stdout with its reasoning dimmed, and says how it ended and how fast."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from sharpi.cli.output.loading import watched
from sharpi.cli.output.terminal import (
    DIM,
    NORMAL,
    WordWrap,
    print_note,
    strip_controls,
    supports_styles,
)
from sharpi.system.process import notes_after_answer
from sharpi.units import plural

if TYPE_CHECKING:
    from sharpi.cli.chat.prompt import ConstrainedAnswers
    from sharpi.dialogue.reasoning_splitter import ReasoningDelta, ReasoningSplitter
    from sharpi.engine.engine import Generation
    from sharpi.engine.sampling.generation_state import Timings
    from sharpi.speculation.statistics import DraftStatistics


_GAP = "\n\n"  # between the reasoning and the answer
_HEADINGS = ("Reasoning:\n", "Answer:\n")


class ReasoningStyle:
    """Adds escape codes or headings to streamed text, and hides the markers of reasoning.

    `prompt` is the text before the answer, because some chat templates end it with the marker that
    begins the reasoning.
    """

    def __init__(self, prompt: str) -> None:
        self._splitter = reasoning_splitter(prompt) if sys.stdout.isatty() else None
        self._is_dim = supports_styles(sys.stdout)
        self._kind = ""  # kind of the text printed last

    def feed(self, text: str) -> str:
        """Returns the text to print now; holds back text that may begin a reasoning marker."""
        return text if self._splitter is None else self._styled(self._splitter.feed(text))

    def end(self) -> str:
        """Returns the text that `feed` held back."""
        return "" if self._splitter is None else self._styled(self._splitter.flush())

    def _styled(self, pieces: Iterable["ReasoningDelta"]) -> str:
        return "".join(part for kind, text in pieces for part in self._parts(kind, text))

    def _parts(self, kind: str, text: str) -> Iterator[str]:
        if kind == "reasoning":
            if self._kind == "" and not self._is_dim:
                yield _HEADINGS[0]
            text = f"{DIM}{text}{NORMAL}" if self._is_dim else text
        elif self._kind == "reasoning":
            yield _GAP if self._is_dim else _GAP + _HEADINGS[1]
        yield text
        self._kind = kind


def reasoning_of(answer: str, prompt: str) -> str:
    """Returns the reasoning in an answer to `prompt`; empty if it has none."""
    splitter = reasoning_splitter(prompt)
    pieces = [*splitter.feed(answer), *splitter.flush()]
    return "".join(text for kind, text in pieces if kind == "reasoning")


def reasoning_splitter(prompt: str) -> "ReasoningSplitter":
    """Returns a splitter that separates the reasoning from the rest of the answer to `prompt`."""
    from sharpi.dialogue.reasoning_splitter import ReasoningSplitter

    return ReasoningSplitter(prompt)


@notes_after_answer()
def stream(
    generation: "Generation",
    style: ReasoningStyle,
    echo: str = "",
    wrap: WordWrap | None = None,
) -> bool:
    """Prints `echo` and the answer as it arrives; returns False if Ctrl-C ended it early.

    `echo` is printed with the first piece of text, so that a failing prefill leaves stdout empty.
    `wrap` breaks lines between words, for a terminal.
    """
    pending = echo if wrap is None else strip_controls(echo)

    def show(piece: str) -> None:
        nonlocal pending
        shown = style.feed(piece if wrap is None else strip_controls(piece))
        shown, pending = pending + shown, ""
        sys.stdout.write(shown if wrap is None else wrap.feed(shown))
        sys.stdout.flush()

    is_complete = collect(generation, show)
    if not is_complete and not generation.ids:
        return False
    end = "" if (pending + generation.text).endswith("\n") else "\n"
    rest = pending + style.end()
    print(rest if wrap is None else wrap.feed(rest), end=end, flush=True)
    return is_complete


def collect(generation: "Generation", show: Callable[[str], None] | None = None) -> bool:
    """Runs the generation and calls `show` with each piece; returns False if Ctrl-C ended it."""
    is_complete = True
    try:
        with closing(watched(generation)) as pieces:
            for piece in pieces:
                if show is not None:
                    show(piece)
    except KeyboardInterrupt:
        is_complete = False
    finally:
        generation.close()
    if not is_complete and not generation.ids and show is not None:
        done, total = generation.num_prefilled, generation.timings.num_prompt_tokens
        print_note(
            f"interrupted after {done} of {total} tokens of the prompt; there is no answer yet"
        )
    return is_complete


def note_end(generation: "Generation", constrained: "ConstrainedAnswers | None") -> None:
    """Prints a note if the context was full, or an answer ended before it had its structure."""
    reason = generation.finish_reason
    if reason == "context":
        print_note("the context is full; raise it with -c or continue with --context-shift")
    elif constrained is not None and not constrained.is_complete:
        if reason == "length":
            print_note("-n ended the answer before its structure was complete; raise it")
        elif reason == "stop":
            print_note("--stop ended the answer before its structure was complete")


def timings_line(timings: "Timings") -> str:
    """Returns the speeds, the time to the first token and the gain from drafts on one line."""
    return f"{_speeds(timings)}{_drafts(timings.drafts)}"


def verbose_lines(timings: "Timings") -> list[str]:
    """Returns two lines: the speeds, and the statistics of drafts, even if none were proposed."""
    return [_speeds(timings), drafts_line(timings.drafts)]


def drafts_line(drafts: "DraftStatistics | None") -> str:
    """Returns what each kind of draft proposed, and what drafts gained, on one line."""
    if drafts is None:
        return "drafts: none were looked for"
    steps = f"{drafts.tokens_per_step:.2f} tokens a step"
    if not drafts.kinds:
        return f"drafts: none proposed, {steps}{_gain(drafts)}"
    kinds = [
        f"{kind} {n.num_proposed} proposed, {n.num_checked} checked, {n.num_accepted} accepted"
        for kind, n in drafts.kinds.items()
    ]
    return f"drafts: {'; '.join(kinds)}; {steps}{_gain(drafts)}"


def _speeds(timings: "Timings") -> str:
    cached = f", {timings.num_cached_tokens} reused" if timings.num_cached_tokens else ""
    prompt = (
        f"prompt {timings.prompt_tokens_per_second:.1f} tokens/s"
        f" ({plural(timings.num_prompt_tokens, 'token')}{cached}), "
    )
    decode = (
        f"decode {timings.decode_tokens_per_second:.1f} tokens/s"
        f" ({plural(timings.num_generated_tokens, 'token')}), "
    )
    has_speed = timings.num_generated_tokens != 1  # the first token is part of the prompt's time
    first = f"first token after {timings.first_token_seconds:.2f} s"
    return f"{prompt}{decode if has_speed else ''}{first}"


def _drafts(drafts: "DraftStatistics | None") -> str:
    """Returns the tokens per step, right drafts and seconds gained; empty if none was checked."""
    if drafts is None or not drafts.num_checked:
        return ""
    kinds = [
        f"{kind} {n.num_accepted} of {n.num_checked}"
        for kind, n in drafts.kinds.items()
        if n.num_checked
    ]
    right = f"right drafts: {', '.join(kinds)}"
    return f", {drafts.tokens_per_step:.2f} tokens a step ({right}){_gain(drafts)}"


def _gain(drafts: "DraftStatistics") -> str:
    """Returns ", N s saved" or ", N s lost"; empty if the seconds round to 0.00."""
    seconds = f"{abs(drafts.seconds_saved):.2f}"
    if float(seconds) == 0:
        return ""
    return f", {seconds} s {'saved' if drafts.seconds_saved > 0 else 'lost'}"
