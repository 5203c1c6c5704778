"""SuffixAutomaton: an index of all runs of tokens in some texts, in memory of a fixed size.

The code is in kernels/cpu/text/suffix_automaton.cpp. It needs about 110 bytes per token.
"""

import os
from array import array
from collections.abc import Sequence
from ctypes import CDLL, c_int, c_int32, c_int64, c_uint64, c_void_p
from functools import cache

from sharpi.native import declare, open_library


class SuffixAutomaton:
    """A suffix automaton for texts of together at most `most` tokens.

    The end of each text counts as a token. Memory is allocated once, and reused after `clear`.
    """

    def __init__(self, most: int) -> None:
        self.num_tokens = 0  # including the ends of texts
        self._library = _library()
        seed = int.from_bytes(os.urandom(8), "little")
        self._handle = self._library.sharpi_suffix_create(most, seed)
        if not self._handle:
            raise MemoryError(f"no memory for the runs of {most} tokens")

    def __del__(self) -> None:
        if handle := getattr(self, "_handle", None):
            self._library.sharpi_suffix_destroy(handle)

    def clear(self) -> None:
        """Removes all texts; existing `Place` objects become invalid."""
        self._library.sharpi_suffix_clear(self._handle)
        self.num_tokens = 0

    def add(self, tokens: Sequence[int]) -> None:
        """Adds a text; raises ValueError if it does not fit."""
        own = array("i", tokens)
        if not self._library.sharpi_suffix_add(self._handle, own.buffer_info()[0], len(own)):
            raise ValueError(f"no room for a text of {len(own)} tokens")
        self.num_tokens += len(own) + 1


class Place:
    """The longest run of tokens at the end of a sequence that occurs in an automaton's texts."""

    def __init__(self, automaton: SuffixAutomaton) -> None:
        self.automaton = automaton
        self._library, self._handle = automaton._library, automaton._handle
        self._at = array("i", (0, 0))

    @property
    def length(self) -> int:
        """The number of tokens of the run; 0 if nothing matches."""
        return self._at[1]

    def follow(self, tokens: "array[int]") -> None:
        """Updates the run by the next tokens of the sequence."""
        if self.automaton.num_tokens:
            place, own = self._at.buffer_info()[0], tokens.buffer_info()
            self._library.sharpi_suffix_follow(self._handle, place, *own)

    def following(self, most: int) -> tuple[int, ...]:
        """Returns at most `most` tokens that follow a recent occurrence of the run, in its text."""
        room = array("i", bytes(4 * most))
        count = self._library.sharpi_suffix_following(
            self._handle, self._at[0], len(room), room.buffer_info()[0]
        )
        return tuple(room[:count])


@cache
def _library() -> CDLL:
    signatures = {
        "sharpi_suffix_create": (c_void_p, [c_int64, c_uint64]),
        "sharpi_suffix_destroy": (None, [c_void_p]),
        "sharpi_suffix_clear": (None, [c_void_p]),
        "sharpi_suffix_add": (c_int, [c_void_p, c_void_p, c_int64]),
        "sharpi_suffix_follow": (None, [c_void_p, c_void_p, c_void_p, c_int64]),
        "sharpi_suffix_following": (c_int32, [c_void_p, c_int32, c_int32, c_void_p]),
    }
    return declare(open_library(), signatures)
