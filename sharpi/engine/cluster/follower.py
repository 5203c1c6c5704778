"""Follower: a rank after the first, which runs its layers for every step that arrives."""

import time
from collections.abc import Callable

from sharpi.cluster.channel import Channel, Kind, Message
from sharpi.engine.cluster.rank_report import RankReport
from sharpi.engine.cluster.step_message import (
    SentStep,
    read_pair,
    read_step,
    step_body,
    values_body,
)
from sharpi.engine.records.expert_records import ExpertRecords
from sharpi.engine.runner import Runner
from sharpi.errors import ClusterError, SharpiError
from sharpi.ops.cuda.replay.gpu_values import StepValues, on_host


class Follower:
    """Runs a rank's layers for every step message, until the first rank ends the run.

    `is_last`: this rank runs the model's last layer. `on_end` is called with this rank's report
    before the closing message goes to the next rank.
    """

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
        """Handles messages until the first rank ends the run.

        Raises ClusterError if the group fails or a step does.
        """
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
        sent = read_step(message.body, self._width)
        start = time.perf_counter()
        try:
            values = self._runner.run_layers(sent.step, sent.max_outputs)
        except SharpiError as error:
            fault = f"{self._name}: {error}"
            self._channel.send(Message(Kind.FAILED, message.number, fault.encode()))
            raise ClusterError(fault) from error
        self._busy_seconds += time.perf_counter() - start
        self._num_steps += 1
        self._pass_on(message.number, sent, values)

    def _pass_on(self, number: int, sent: SentStep, values: StepValues) -> None:
        outputs = sum(len(segment.outputs) for segment in sent.step.segments)
        if self._is_last and not outputs:
            return
        if self._is_last:
            self._channel.send(Message(Kind.OUTPUTS, number, values_body(on_host(values))))
        else:
            body = step_body(sent.step, on_host(values), sent.max_outputs)
            self._channel.send(Message(Kind.STEP, number, body))
