"""Streams an answer to stdout, and then says how it ended."""

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from sharpi.cli.chat.reasoning_style import ReasoningStyle
from sharpi.cli.output.prefill_bar import watched
from sharpi.cli.output.terminal import print_note, strip_controls
from sharpi.cli.output.word_wrap import WordWrap
from sharpi.system.process import notes_after_answer

if TYPE_CHECKING:
    from sharpi.cli.options.output_format import ConstrainedAnswers
    from sharpi.engine.generation import Generation


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
    is_complete, pending = True, echo
    try:
        with closing(watched(generation)) as pieces:
            for piece in pieces:
                shown, pending = _shown(pending, piece, style, wrap), ""
                sys.stdout.write(shown)
                sys.stdout.flush()
    except KeyboardInterrupt:
        is_complete = False
    finally:
        generation.close()
    if not is_complete and not generation.ids:
        note_interrupted_prefill(generation)
        return False
    end = "" if (pending + generation.text).endswith("\n") else "\n"
    rest = pending + style.end()
    print(rest if wrap is None else wrap.feed(rest), end=end, flush=True)
    return is_complete


def _shown(before: str, piece: str, style: ReasoningStyle, wrap: WordWrap | None) -> str:
    if wrap is None:
        return before + style.feed(piece)
    return wrap.feed(strip_controls(before) + style.feed(strip_controls(piece)))


def collect(generation: "Generation") -> bool:
    """Runs the generation without printing it; returns False if Ctrl-C ended it early."""
    try:
        with closing(watched(generation)) as pieces:
            for _ in pieces:
                pass
    except KeyboardInterrupt:
        return False
    finally:
        generation.close()
    return True


def note_interrupted_prefill(generation: "Generation") -> None:
    """Prints how many tokens of the prompt were computed when Ctrl-C interrupted its prefill."""
    done, total = generation.num_prefilled, generation.timings.num_prompt_tokens
    print_note(f"interrupted after {done} of {total} tokens of the prompt; there is no answer yet")


def note_early_end(generation: "Generation") -> None:
    """Prints a note if the answer ended because the context was full, with the flags that help."""
    if generation.finish_reason == "context":
        print_note("the context is full; raise it with -c or continue with --context-shift")


def note_length(generation: "Generation") -> None:
    """Tells the user if -n cut the answer off."""
    if generation.finish_reason == "length":
        print_note("-n ended the answer; /set predict -1 lets the model end")


def note_incomplete_output(
    generation: "Generation", constrained: "ConstrainedAnswers | None"
) -> None:
    """Prints a note if -n or --stop ended an answer before it matched its schema or grammar."""
    if constrained is None or constrained.is_complete:
        return
    if generation.finish_reason == "length":
        print_note("-n ended the answer before its structure was complete; raise it")
    elif generation.finish_reason == "stop":
        print_note("--stop ended the answer before its structure was complete")
