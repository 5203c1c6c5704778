"""RecordReader: reads records on other threads, some ahead of the one in use."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from sharpi.engine.prompt_cache.checksum import Bytes
from sharpi.engine.prompt_cache.record import Record, RecordFault
from sharpi.engine.prompt_cache.record_file import read_record
from sharpi.ops.cpu.buffers import aligned_bytes

_READS_AHEAD = 4
_READERS = 2


class RecordReader:
    """Reads the files of records, whose paths `path_of` returns, on its own threads."""

    def __init__(self, path_of: Callable[[Record], Path]) -> None:
        self._path_of = path_of
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="prompt cache")

    def read(self, wanted: Sequence[Record]) -> Iterator[tuple[Record, Bytes, str | None]]:
        """Yields each record with its page and state, and its fault if it has one.

        The bytes are valid until the next record. The fault is None for a valid record, and "" for
        a record that another process removed.
        """
        size = max((record.num_bytes for record in wanted), default=0)
        buffers = [aligned_bytes(size) for _ in range(min(_READS_AHEAD, len(wanted)))]
        ahead: list[Future[str | None]] = []
        for number, record in enumerate(wanted):
            while len(ahead) < len(wanted) and len(ahead) < number + len(buffers):
                buffer = buffers[len(ahead) % len(buffers)]
                ahead.append(self._pool.submit(self._fault_of, wanted[len(ahead)], buffer))
            fault = ahead[number].result()
            yield record, buffers[number % len(buffers)][: record.num_bytes], fault

    def _fault_of(self, record: Record, buffer: Bytes) -> str | None:
        try:
            read_record(self._path_of(record), record, buffer[: record.num_bytes])
        except FileNotFoundError:
            return ""
        except RecordFault as fault:
            return str(fault)
        except OSError as error:
            return error.strerror or str(error)
        return None

    def close(self) -> None:
        """Waits for the reads that have begun, and ends the threads."""
        self._pool.shutdown()
