"""ReturnableMemory: memory of which parts can be returned to the system, and then read as zeros."""

import mmap

import numpy as np
import numpy.typing as npt


class ReturnableMemory:
    """Memory `array` (num_bytes,) of zeros, which the system allocates on first use in small pages.

    Huge pages are avoided: more memory would be allocated than is used, and the kernel might fill
    returned pages again.
    """

    def __init__(self, num_bytes: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._mapping = mmap.mmap(-1, max(num_bytes, 1), flags=flags)
        self._advise("MADV_NOHUGEPAGE", 0, len(self._mapping))
        self.array: npt.NDArray[np.uint8] = np.frombuffer(self._mapping, np.uint8)[:num_bytes]

    def give_back(
        self, begin: int, end: int, *, widens: tuple[bool, bool] = (False, False)
    ) -> None:
        """Returns the system pages that are entirely within the bytes [begin, end).

        The pages at both ends may also hold bytes outside that range. The first flag of `widens`
        returns the page at the beginning, too, the second one the page at the end.
        """
        size = mmap.PAGESIZE
        begin = (begin if widens[0] else begin + size - 1) // size * size
        end = min((end + size - 1 if widens[1] else end) // size * size, len(self._mapping))
        if end > begin:
            self._advise("MADV_DONTNEED", begin, end - begin)

    def _advise(self, name: str, begin: int, length: int) -> None:
        advice = getattr(mmap, name, None)
        if advice is not None:
            self._mapping.madvise(advice, begin, length)
