"""SmallUpload: small uploads through page-locked buffers, without waiting on the host.

The driver copies pageable memory through its own buffer, and the host would have to wait for that
before changing the source.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
SMALL_BYTES = 64 << 10  # the most bytes of one upload
_BUFFERS = 8


class SmallUpload:
    """Uploads through a ring of buffers; a buffer is reused once its last copy has ended.

    `mapped`, `copy` and `mark` are those of StagedUpload.
    """

    def __init__(
        self,
        mapped: Callable[[int], tuple[Any, Bytes]],
        copy: Callable[[int, int, int], None],
        mark: Callable[[], Any],
    ) -> None:
        self._copy, self._mark = copy, mark
        self._memory, self._host = mapped(_BUFFERS * SMALL_BYTES)
        self._last: list[Any] = [None] * _BUFFERS  # the event after each buffer's last copy
        self._next = 0

    def upload(self, target: int, data: Bytes) -> None:
        """Starts a copy of at most SMALL_BYTES flat bytes; reads them before it returns."""
        index, self._next = self._next, (self._next + 1) % _BUFFERS
        if self._last[index] is not None:
            self._last[index].synchronize()
        start = index * SMALL_BYTES
        self._host[start : start + data.nbytes] = data
        self._copy(target, self._memory.address + start, data.nbytes)
        self._last[index] = self._mark()
