"""RequestChannel: requests to one other rank and its replies, beside the pipeline's messages.

Requests and replies have their own message tags, so that they and the pipeline's messages do not
wait for each other. Only one of the two ranks sends requests, and it waits for each reply before
the next request.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

_REQUEST, _REPLY = 1, 2  # tags; the pipeline has 0
_EMPTY_BYTES = 16  # bytes of the empty request, the last one
Bytes = npt.NDArray[np.uint8]


class RequestChannel:
    """The connection to rank `other` for requests and replies.

    Its methods raise if `other` is lost.
    """

    def __init__(self, torch: Any, other: int) -> None:
        self._torch, self.other = torch, other
        self._group = torch.distributed.group.WORLD

    def call(self, request: bytes, reply_bytes: int) -> Bytes:
        """Sends a request, waits for the reply of `reply_bytes` bytes, and returns it."""
        self._send(np.frombuffer(bytearray(request), np.uint8), _REQUEST)
        return self._receive(reply_bytes, _REPLY)

    def end(self) -> None:
        """Sends the empty request, which tells the other rank that no more will follow."""
        self._send(np.zeros(_EMPTY_BYTES, np.uint8), _REQUEST)

    def receive_request(self, buffer: Bytes) -> None:
        """Waits for a request, and writes it to the beginning of `buffer`."""
        self._group.recv([self._torch.from_numpy(buffer)], self.other, _REQUEST).wait()

    def send_reply(self, values: Bytes) -> None:
        """Sends the reply to the latest request."""
        self._send(values, _REPLY)

    def _send(self, data: Bytes, tag: int) -> None:
        self._group.send([self._torch.from_numpy(data)], self.other, tag).wait()

    def _receive(self, size: int, tag: int) -> Bytes:
        buffer = np.empty(size, np.uint8)
        self._group.recv([self._torch.from_numpy(buffer)], self.other, tag).wait()
        return buffer
