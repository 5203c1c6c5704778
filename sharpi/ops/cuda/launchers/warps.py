"""Numbers of threads that fill whole warps."""

from typing import Final

_WARP: Final = 32


def whole_warps(threads: int, most: int) -> int:
    """Returns the threads of a block: `threads` rounded up to whole warps, but `most` at most."""
    return min(most, -(-threads // _WARP) * _WARP)
