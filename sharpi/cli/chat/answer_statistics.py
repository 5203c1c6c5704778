"""Formats an answer's statistics: speeds on one line, and the gain from its drafts."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sharpi.engine.sampling.timings import Timings
    from sharpi.speculation.statistics import DraftStatistics


def timings_line(timings: "Timings") -> str:
    """Returns the speeds, the time to the first token and the gain from drafts on one line."""
    return f"{_speeds(timings)}{_drafts(timings.drafts)}"


def verbose_lines(timings: "Timings") -> list[str]:
    """Returns two lines: the speeds, and the statistics of drafts, even if none were proposed."""
    return [_speeds(timings), drafts_line(timings.drafts)]


def drafts_line(drafts: "DraftStatistics | None") -> str:
    """Returns one line: the tokens that each kind of draft proposed, checked and accepted.

    Tokens per step and the seconds gained or lost follow.
    """
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
    return (
        f"prompt {timings.prompt_tokens_per_second:.1f} tokens/s"
        f" ({timings.num_prompt_tokens} tokens{cached}), "
        f"decode {timings.decode_tokens_per_second:.1f} tokens/s"
        f" ({timings.num_generated_tokens} tokens), "
        f"first token after {timings.first_token_seconds:.2f} s"
    )


def _drafts(drafts: "DraftStatistics | None") -> str:
    """Returns the end of the timings line: tokens per step, accepted drafts and seconds gained.

    It is empty if no draft was checked.
    """
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
