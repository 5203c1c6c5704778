"""Limits the number of values and the nesting depth of JSON text before it is parsed.

A parser holds the GIL, and a value of a few bytes becomes a much larger object. So 30 MB of small
values would take gigabytes, and stop the event loop for seconds. Values are counted in slices,
between which other threads run.
"""

import numpy as np
import numpy.typing as npt

from sharpi.serve.http.errors import invalid_request

MAX_VALUES = 250_000
MAX_NAMES = 50_000  # names of members, which take more memory than values
MAX_DEPTH = 200
_SLICE = 1 << 18  # bytes

_QUOTE = ord('"')
_OPENING, _CLOSING, _COMMA, _COLON = 1, 2, 3, 4
_KINDS = np.zeros(256, np.uint8)
_KINDS[list(b"[{")], _KINDS[list(b"]}")] = _OPENING, _CLOSING
_KINDS[ord(",")], _KINDS[ord(":")] = _COMMA, _COLON


def check_json_size(data: bytes) -> None:
    """Raises ApiError 400 for JSON with too many values or member names, or nested too deeply."""
    depth, in_text, escapes = 0, False, False
    counts = np.zeros(5, np.int64)  # of each kind of character
    for start in range(0, len(data), _SLICE):
        part, escapes = _unescaped(data[start : start + _SLICE], escapes)
        signs, in_text = _signs(part, in_text)
        counts += np.bincount(signs, minlength=5)
        levels = depth + np.cumsum((signs == _OPENING).astype(np.int64) - (signs == _CLOSING))
        if len(levels):
            depth = int(levels[-1])
        if levels.max(initial=0) > MAX_DEPTH:
            raise invalid_request(f"the body is nested more than {MAX_DEPTH} levels deep")
        if counts[_COLON] > MAX_NAMES:
            raise invalid_request(f"the objects of the body have more than {MAX_NAMES} values")
        if counts[_COMMA] + counts[_OPENING] > MAX_VALUES:
            raise invalid_request(f"the body has more than {MAX_VALUES} values")


def _unescaped(part: bytes, escapes: bool) -> tuple[bytes, bool]:
    r"""Replaces escape sequences in a slice of JSON; returns the slice and a flag.

    The flag says whether the last byte of the slice escapes the next byte. `escapes` is the flag of
    the slice before.
    """
    if escapes:
        part = b"_" + part[1:]
    if b"\\" not in part:
        return part, False
    part = part.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    return part, part.endswith(b"\\")


def _signs(part: bytes, in_text: bool) -> tuple[npt.NDArray[np.uint8], bool]:
    """Returns the brackets, commas and colons outside of strings, in order, as kinds 1 to 4.

    Also returns whether the slice ends within a string. `in_text` says whether it begins within
    a string.
    """
    letters = np.frombuffer(part, np.uint8)
    inside = (np.cumsum(letters == _QUOTE, dtype=np.uint8) + np.uint8(in_text)) & 1
    signs = _KINDS[letters]
    signs[inside == 1] = 0
    return signs[signs != 0], bool(inside[-1]) if len(inside) else in_text
