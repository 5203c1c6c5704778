"""HostMisses: the GPU calls that request missed experts from the host and merge the results."""

from collections.abc import Iterable, Iterator

from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.expert_slots.host_experts import HostExperts
from sharpi.ops.cuda.expert_slots.mailbox import Mailbox
from sharpi.ops.cuda.launchers import waits
from sharpi.ops.cuda.launchers.experts.host_items import host_items, host_predictions, merge
from sharpi.ops.cuda.launchers.waits import Wait
from sharpi.ops.cuda.recorded import AwaitWord, Call, WriteWord


class HostMisses:
    """A mailbox, and the `HostExperts` that compute what the GPU requests through it."""

    def __init__(self, mailbox: Mailbox, experts: HostExperts) -> None:
        self._mailbox, self.experts = mailbox, experts

    def request(
        self,
        ids: Span,
        addresses: Span,
        x: Span,
        input_weights: Span | None,
        host_rows: Span,
        *,
        tokens: int,
        used: int,
        columns: int,
        predictions: Iterable[Call] = (),
    ) -> Iterator[Call]:
        """Yields the calls that send a layer's missed experts and their inputs to the host.

        They are `predictions`, which `predict` returned, then the launch of `host_items`, then the
        write of the mailbox's word `request`.
        """
        yield from predictions
        yield host_items(
            ids, addresses, x, input_weights, host_rows, self._mailbox.host_items,
            tokens=tokens, used=used, columns=columns,
        )  # fmt: skip
        yield WriteWord(self._mailbox.request, 1)

    def predict(self, ids: Span, addresses: Span, *, layer: int, tokens: int, used: int) -> Launch:
        """Returns the launch that writes the experts predicted for a layer to the mailbox."""
        return host_predictions(
            ids, addresses, self._mailbox.predicted, tokens=tokens, used=used, layer=layer
        )

    def merge(
        self,
        values: Span,
        host_rows: Span,
        ids: Span,
        weights: Span | None,
        out: Span,
        *,
        layer: int,
        tokens: int,
        used: int,
        rows: int,
        residual: Span | None,
        scale: float,
        wait: Wait,
    ) -> Iterator[Call]:
        """Yields the calls that wait for the host's results, and sum them with the GPU's.

        The waiting time is added to `wait`.
        """
        yield waits.begin(wait)
        yield AwaitWord(self._mailbox.reply, 1, self.experts.await_next, layer)
        yield WriteWord(self._mailbox.reply, 0)
        yield merge(
            values, self._mailbox.values, host_rows, ids, weights, out,
            tokens=tokens, used=used, rows=rows, residual=residual, scale=scale,
            wait=wait,
        )  # fmt: skip
