"""The flags of llama.cpp, vLLM and SGLang: what other_programs.toml says is done with each."""

import tomllib
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from sharpi.cli.output.terminal import print_note
from sharpi.errors import UsageError

_TABLE = Path(__file__).with_suffix(".toml")
_SWITCH_WORDS = ("on", "off", "auto", "0", "1", "true", "false", "enabled", "disabled")


class _Flag(Struct, frozen=True):
    """A flag of another program, and what is done with it."""

    section: str  # "same", "idle" or "instead"
    value: str  # "X", "[X]" if the value may be missing, or ""
    text: str  # the flags that mean the same, or a sentence


def translated(arguments: Sequence[str], own: Mapping[str, bool]) -> list[str]:
    """Returns the arguments with other programs' flags replaced by those of the command.

    `own` says of each of the command's flags whether it takes a value. Prints a note for a flag
    that is replaced or has no effect. Raises UsageError, which says what to use, for other ones.
    """
    flags, kept, added, rest = _flags(), list[str](), list[str](), deque(arguments)
    while rest and rest[0] != "--":
        name, equals, value = (argument := rest.popleft()).partition("=")
        flag = None if name in own else _find(name, flags)
        if flag is None:
            kept.append(argument)
            kept += _value("X", rest) if own.get(name) and not equals else []
        else:
            added += _replaced(name, flag, [value] if equals else _value(flag.value, rest), own)
    return [*kept, *added, *rest]  # the later value of a flag counts, so that -ub is above -b


def _flags() -> dict[str, _Flag]:
    flags: dict[str, _Flag] = {}
    for section, rows in tomllib.loads(_TABLE.read_text("utf-8")).items():
        for key, text in rows.items():
            names = key.split()
            value = names.pop() if not names[-1].startswith("-") else ""
            flags |= dict.fromkeys(names, _Flag(section, value, text))
    return flags


def _find(name: str, flags: Mapping[str, _Flag]) -> _Flag | None:
    begun = (flag for key, flag in flags.items() if key[-1] == "*" and name.startswith(key[:-1]))
    return flags.get(name) or next(begun, None)


def _value(kind: str, rest: deque[str]) -> list[str]:
    """Takes a flag's value from the arguments after it."""
    has_value = kind == "X" or (kind == "[X]" and rest and rest[0] in _SWITCH_WORDS)
    return [rest.popleft()] if has_value and rest else []


def _replaced(
    name: str, flag: _Flag, values: Sequence[str], own: Mapping[str, bool]
) -> Sequence[str]:
    if flag.section == "instead":
        raise UsageError(f"there is no option {name}: {flag.text}")
    if flag.section == "idle":
        print_note(f"{name} has no effect: {flag.text}")
        return ()
    words = flag.text.split()
    needed = next(word for word in reversed(words) if word.startswith("-"))
    if needed not in own:
        raise UsageError(f"there is no option {name}; `sharpi run` reads it as {flag.text}")
    if own[needed] and needed == words[-1] and not values:
        raise UsageError(f"{name} needs a value")
    kept = [word for word in words if word in own or not word.startswith("-")]
    print_note(f"{name} is read as {' '.join(kept)}")
    return [*kept, *values]
