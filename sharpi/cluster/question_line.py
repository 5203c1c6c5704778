"""QuestionLine: questions to one other rank and its answers, beside the pipeline's messages.

Questions and answers have their own message tags, so that they and the pipeline's messages do not
wait for each other. Only one of the two ranks asks, and it waits for each answer before the next
question.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

_QUESTION, _ANSWER = 1, 2  # tags; the pipeline has 0
_NOTHING = 16  # bytes of the empty question, which ends the line
Bytes = npt.NDArray[np.uint8]


class QuestionLine:
    """The line to rank `other` of torch.distributed's group; its calls raise if `other` is lost."""

    def __init__(self, torch: Any, other: int) -> None:
        self._torch, self.other = torch, other
        self._group = torch.distributed.group.WORLD

    def ask(self, question: bytes, answer_bytes: int) -> Bytes:
        """Sends a question and returns its answer, which has `answer_bytes` bytes."""
        self._send(np.frombuffer(bytearray(question), np.uint8), _QUESTION)
        return self._receive(answer_bytes, _ANSWER)

    def end(self) -> None:
        """Sends the empty question, after which the other rank stops answering."""
        self._send(np.zeros(_NOTHING, np.uint8), _QUESTION)

    def question(self, room: Bytes) -> None:
        """Waits for a question, and writes it to the beginning of the buffer `room`."""
        self._group.recv([self._torch.from_numpy(room)], self.other, _QUESTION).wait()

    def answer(self, values: Bytes) -> None:
        """Sends the answer to the latest question."""
        self._send(values, _ANSWER)

    def _send(self, data: Bytes, tag: int) -> None:
        self._group.send([self._torch.from_numpy(data)], self.other, tag).wait()

    def _receive(self, size: int, tag: int) -> Bytes:
        room = np.empty(size, np.uint8)
        self._group.recv([self._torch.from_numpy(room)], self.other, tag).wait()
        return room
