"""The errors that a user can cause or run into; any other exception is a bug.

The command line prints `str(error)` on one line and exits with `exit_code`; a message therefore
says what is wrong, where, and what to do. `did_you_mean` adds the words that were probably meant.
"""

from collections.abc import Iterable


class SharpiError(Exception):
    """An expected failure, worded for the user."""

    exit_code = 1


class UsageError(SharpiError):
    """The request itself is wrong: a flag, a variable or their combination."""

    exit_code = 2


class GrammarError(UsageError):
    """The grammar or JSON schema is malformed, not supported in some part, or too complex."""


class BusyError(SharpiError):
    """Too many requests of one kind are in progress; the same request may succeed later."""


class ModelFileError(SharpiError):
    """The file cannot be read as a GGUF model: missing, truncated, corrupt or inconsistent."""


class UnsupportedModelError(SharpiError):
    """The file is valid, but needs a feature that sharpi does not have."""


class TraceFileError(SharpiError):
    """The file is not a trace of routes, or its content contradicts itself."""


class StatsFileError(SharpiError):
    """The file is not a file of expert stats or a profile, or it belongs to another model."""


class TemplateError(SharpiError):
    """The chat template failed, refused the messages, or tried to leave its sandbox."""


class ContextFullError(SharpiError):
    """The tokens do not fit into the context; the message says how many fit and what helps."""


def too_long_prompt(count: str, context_size: int, remedy: str) -> ContextFullError:
    """Returns the error of a too long prompt in words by which Claude Code shortens it."""
    limit = f"{context_size} maximum context length"
    return ContextFullError(f"prompt is too long: {count} tokens > {limit}; {remedy}")


class DeviceError(SharpiError):
    """The GPU cannot be used, or does not have the memory that was requested."""


class MissingPackageError(DeviceError):
    """A Python package that a GPU or a group of machines needs is missing or broken."""


class HubError(SharpiError):
    """The model hub refuses a request, cannot be reached, or lacks the named repository or file."""


class ClusterError(SharpiError):
    """Another machine of the group is missing, has failed, or has a different model."""


class LinkError(ClusterError):
    """This machine has no usable network interface to the other machines of its group."""


def did_you_mean(word: str, known: Iterable[str], most: int = 1) -> str:
    """Returns "; did you mean A or B?" with at most `most` known words; empty if none is close."""
    close = close_matches(word, known, most)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def close_matches(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Returns the known words that `word` may be a misspelling or the beginning of, closest first.

    A misspelling has one wrong letter, two from 6 letters on, three from 10, and so on. Case and
    leading hyphens do not count.
    """
    typed = word.lower().lstrip("-")
    ranks = {each: _rank(typed, each.lower().lstrip("-")) for each in known}
    close = {each: rank for each, rank in ranks.items() if rank is not None}
    return sorted(close, key=close.__getitem__)[:most]


def _rank(typed: str, known: str) -> int | None:
    """Returns a smaller number the closer the words are; None if they are too different."""
    edits = _edits(typed, known)
    if edits <= (max(len(typed), len(known)) + 2) // 4:
        return edits
    return len(known) if len(typed) >= 2 and known.startswith(typed) else None


def _edits(one: str, other: str) -> int:
    """Returns how many letters must be inserted, deleted, replaced or swapped with the next."""
    above: list[int] = []
    last = list(range(len(other) + 1))
    for i, a in enumerate(one):
        row = [i + 1]
        for j, b in enumerate(other):
            edits = min(last[j + 1] + 1, row[j] + 1, last[j] + (a != b))
            if i and j and a == other[j - 1] and b == one[i - 1]:
                edits = min(edits, above[j - 1] + 1)
            row.append(edits)
        above, last = last, row
    return last[-1]
