"""The pipeline of ranks: RemotePart on the first rank, and a Follower on each other one.

RemotePart is the layers that other ranks run, as one part of the first rank's model. A step passes
from rank to rank, and the last rank returns the values of the step's outputs. Several steps of
different sequences may be in progress at once, so that all ranks work. The first rank does not wait
for steps without outputs, such as most steps of a long prompt.
"""

import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from sharpi.cluster.channel import Channel, Kind, Message
from sharpi.engine.backends.model_part import RemoteLayers, StepOfPart, Values
from sharpi.engine.cluster.agreement import RankReport
from sharpi.engine.cluster.step_message import (
    pair_body,
    read_pair,
    read_step,
    read_values,
    step_body,
)
from sharpi.engine.records.expert_records import ExpertRecords
from sharpi.engine.runner import Runner
from sharpi.errors import ClusterError, SharpiError
from sharpi.ops.cuda.replay.step_outputs import on_host


class RemotePart(RemoteLayers):
    """Runs the other ranks' layers, gives values (outputs, hidden), and raises ClusterError."""

    def __init__(
        self,
        channel: Channel,
        hidden_size: int,
        max_tokens: int,
        num_ranks: int,
        on_close: Callable[[], None],
    ) -> None:
        self._channel, self._width, self._max_tokens = channel, hidden_size, max_tokens
        self.num_ranks, self._on_close = num_ranks, on_close
        self._number, self._has_left = 0, False
        self._wanted: set[int] = set()  # steps whose outputs the caller waits for
        self._arrived: dict[int, Values] = {}

    @property
    def max_tokens(self) -> int:
        return self._max_tokens

    def run(self, step: StepOfPart, max_outputs: int) -> Values:
        number = self.send(step, max_outputs)
        none = np.zeros((0, self._width), np.float32)
        return none if number is None else self.receive(number)

    def send(self, step: StepOfPart, max_outputs: int) -> int | None:
        self._send(Kind.STEP, step_body(step, on_host(step.incoming), max_outputs))
        if not any(len(segment.outputs) for segment in step.segments):
            return None
        self._wanted.add(self._number)
        return self._number

    def receive(self, number: int) -> Values:
        try:
            while number not in self._arrived:
                self._take(self._channel.receive())
            return self._arrived.pop(number)
        finally:
            self.discard(number)

    def discard(self, number: int) -> None:
        self._wanted.discard(number)
        self._arrived.pop(number, None)

    def _take(self, message: Message) -> None:
        """Handles a message, and stores a step's outputs unless `discard` was called for it."""
        if message.kind is Kind.FAILED:
            raise ClusterError(bytes(message.body).decode(errors="replace"))
        if message.kind is Kind.OUTPUTS and message.number in self._wanted:
            self._arrived[message.number] = read_values(message.body, self._width)

    def _send(self, kind: Kind, body: bytes = b"") -> None:
        self._number += 1
        self._channel.send(Message(kind, self._number, body))

    def copy_page(self, source: int, target: int) -> None:
        self._send(Kind.COPY_PAGE, pair_body(source, target))

    def drop_windows(self, page: int, *, is_before_free: bool, is_after_free: bool) -> None:
        self._send(Kind.DROP_WINDOWS, pair_body(page, is_before_free | is_after_free << 1))

    def copy_state(self, source: int, target: int) -> None:
        self._send(Kind.COPY_STATE, pair_body(source, target))

    def close(self) -> None:
        """Ends the run on the other ranks, and leaves the group; a second call does nothing."""
        if self._has_left:
            return
        self._has_left = True
        with suppress(ClusterError):  # they know already
            self._send(Kind.CLOSE)
        self._on_close()


class Follower:
    """Runs a rank's layers for every step message; `on_end` gets its report once the run ends."""

    def __init__(
        self,
        runner: Runner,
        records: ExpertRecords,
        channel: Channel,
        hidden_size: int,
        on_end: Callable[[RankReport], None],
        *,
        is_last: bool,
        name: str,
    ) -> None:
        self._runner, self._records = runner, records
        self._channel, self._width = channel, hidden_size
        self._on_end, self._is_last, self._name = on_end, is_last, name
        self._num_steps, self._busy_seconds = 0, 0.0

    def run(self) -> None:
        """Handles messages until the run ends; raises ClusterError if the group or a step fails."""
        self._runner.prepare()
        while (message := self._channel.receive()).kind is not Kind.CLOSE:
            self._take(message)
        link, experts = self._channel.stats, self._records.stats_to_report()
        self._on_end(RankReport(link, self._num_steps, self._busy_seconds, experts))
        self._channel.send(message)  # goes all the way round, so that every rank stops receiving

    def _take(self, message: Message) -> None:
        if message.kind is Kind.STEP:
            self._step(message)
            return
        if message.kind in (Kind.COPY_PAGE, Kind.COPY_STATE):
            memory = self._runner.memory
            copy = memory.copy_page if message.kind is Kind.COPY_PAGE else memory.copy_state
            copy(*read_pair(message.body))
        if message.kind is Kind.DROP_WINDOWS:
            page, free = read_pair(message.body)
            before, after = bool(free & 1), bool(free & 2)
            self._runner.memory.drop_windows(page, before, after)
        if message.kind is Kind.FAILED or not self._is_last:
            self._channel.send(message)

    def _step(self, message: Message) -> None:
        step, max_outputs = read_step(message.body, self._width)
        start = time.perf_counter()
        try:
            values = self._runner.run_layers(step, max_outputs)
        except SharpiError as error:
            fault = f"{self._name}: {error}"
            self._channel.send(Message(Kind.FAILED, message.number, fault.encode()))
            raise ClusterError(fault) from error
        self._busy_seconds += time.perf_counter() - start
        self._num_steps += 1
        given = on_host(values)
        if not self._is_last:
            body = step_body(step, given, max_outputs)
            self._channel.send(Message(Kind.STEP, message.number, body))
        elif any(len(segment.outputs) for segment in step.segments):
            self._channel.send(Message(Kind.OUTPUTS, message.number, given.tobytes()))
