"""SmallUpload: copies small arrays to the GPU without blocking the host.

The bytes first go to a page-locked buffer. A copy from pageable memory would block the host until
the driver has read the source.
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

    `mapped`, `copy` and `record_event` are the functions that StagedUpload describes.
    """

    def __init__(
        self,
        mapped: Callable[[int], tuple[Any, Bytes]],
        copy: Callable[[int, int, int], None],
        record_event: Callable[[], Any],
    ) -> None:
        self._copy, self._record_event = copy, record_event
        self._memory, self._host = mapped(_BUFFERS * SMALL_BYTES)
        self._last: list[Any] = [None] * _BUFFERS  # the event after each buffer's last copy
        self._next = 0

    def upload(self, target: int, data: Bytes) -> None:
        """Starts a copy of `data`, at most SMALL_BYTES bytes, to an address of the device.

        The caller may change `data` afterwards.
        """
        index, self._next = self._next, (self._next + 1) % _BUFFERS
        if self._last[index] is not None:
            self._last[index].synchronize()
        start = index * SMALL_BYTES
        self._host[start : start + data.nbytes] = data
        self._copy(target, self._memory.address + start, data.nbytes)
        self._last[index] = self._record_event()
