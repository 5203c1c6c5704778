"""SlottedExpertCalls: the calls of a feed-forward whose experts partly have slots."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from sharpi.device.launch import Span
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cuda.expert_slots.gpu_expert_weights import GpuExpertWeights
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers
from sharpi.ops.cuda.launchers.experts.experts import Items
from sharpi.ops.cuda.launchers.experts.host_items import Wait
from sharpi.ops.cuda.recorded import (
    Call,
    Calls,
    RecordedTensor,
    SideStream,
    StepShape,
    WaitFor,
)
from sharpi.ops.cuda.recorder.expert_launches import ExpertLaunches, grouped_sum, packed_experts
from sharpi.ops.cuda.recorder.expert_operands import Parts
from sharpi.ops.cuda.recorder.feed_forward import GROUPED_TOKENS
from sharpi.ops.cuda.recording import Recording


class RoutePrediction(Struct, frozen=True, eq=False):
    """The recorded prediction of one layer's experts, made while the previous layer computes."""

    layer: int
    ids: RecordedTensor  # the predicted experts, best first
    operations: tuple[Calls, ...]  # the operations that compute the ids
    values: tuple[RecordedTensor, ...]  # all values that the operations use
    is_for_host: bool = False  # the prediction is sent to the host, and the GPU prefetches nothing

    def predict(self, step: StepShape) -> Iterator[Call]:
        """Yields the calls that predict on the side stream, during the previous layer.

        `wait_for_prediction` must follow before the previous layer ends.
        """
        if step.predicts:
            calls = [call for operation in self.operations for call in operation(step)]
            yield SideStream((self, "predict"), tuple(calls))

    def wait_for_prediction(self, step: StepShape) -> Iterator[Call]:
        """Yields the wait for the prediction, after which the memory of `values` can be reused."""
        if step.predicts:
            yield WaitFor((self, "predict"))

    def prefetch(
        self, recording: Recording, layers: SlottedLayers, after: int, step: StepShape
    ) -> Iterator[Call]:
        """Yields the calls that prefetch the predicted experts, if the bus is idle.

        They must follow the launch in which layer `after` lists its own loads.
        """
        if step.predicts and not self.is_for_host:
            ids = recording.of(self.ids)
            budget, tokens = layers.settings.num_early, step.rows(Rows.PREDICTED)
            launches = layers.tables.prefetch(self.layer, ids, after, budget, tokens)
            yield SideStream((self, "prefetch"), tuple(launches))

    def wait_for_prefetch(self, step: StepShape) -> Iterator[Call]:
        """Yields the wait for the prefetch, before the layer itself looks up its experts."""
        if step.predicts and not self.is_for_host:
            yield WaitFor((self, "prefetch"))


class RoutePredictions:
    """The route predictions of a recording, in the order of the layers.

    The prediction for a layer is recorded within the layer before it.
    """

    def __init__(self) -> None:
        self._next: RoutePrediction | None = None
        self._current: RoutePrediction | None = None

    def add(self, route_prediction: RoutePrediction) -> None:
        """Adds the prediction that the current layer makes for the next one."""
        self._next = route_prediction

    def take(self, *, is_slotted: bool) -> tuple[RoutePrediction | None, RoutePrediction | None]:
        """Returns the predictions for the current layer and for the next one; None for none.

        `is_slotted` says that the current layer has slots. Without slots it has no list of loads,
        from which a prefetch sees whether the bus is idle; so the second prediction is None.
        """
        next_prediction, self._next = self._next if is_slotted else None, None
        current, self._current = self._current, next_prediction
        return current, next_prediction


def of_predictions(value: RecordedTensor) -> RecordedTensor:
    """Returns a view of a value as the input of predictions: with rows of the kind PREDICTED."""
    return RecordedTensor(value.width, Rows.PREDICTED, value.floats, value.source)


class SlottedExpertCalls(Struct, frozen=True):
    """The calls of one layer's feed-forward; its experts are looked up in the slots first."""

    launches: ExpertLaunches
    expert_weights: GpuExpertWeights
    layer: int
    prediction: RoutePrediction | None = None  # for this layer
    next_prediction: RoutePrediction | None = None  # for the next layer

    def calls(self, step: StepShape) -> Iterator[Call]:
        """Yields the calls of a step of this shape."""
        here = replace(self, launches=replace(self.launches, step=step))
        tokens, ids = step.rows(self.launches.x.rows), here.launches.ids
        slotted = self.expert_weights.slotted
        assert slotted is not None
        assert ids is not None
        step = slotted.step(self.layer, step)
        if step.sequences > 1 or tokens == 1:
            yield from here._decode(slotted, tokens, step)
        elif tokens:
            yield from here._batch(slotted, ids, step)
            if step.chunk in (None, slotted.prefill_access.num_chunks(self.layer) - 1):
                is_first = step.batch_index == here._batches_of_layer(step)[0]
                yield from slotted.use_batch(self.layer, ids, tokens, is_first=is_first)

    def _decode(self, slotted: SlottedLayers, tokens: int, step: StepShape) -> Iterator[Call]:
        """Yields the calls for one token of each sequence, which look up experts in turn."""
        prediction, next_prediction, ids = self.prediction, self.next_prediction, self.launches.ids
        assert ids is not None
        if next_prediction is not None:
            yield from next_prediction.predict(step)
        if prediction is not None:
            yield from prediction.wait_for_prefetch(step)
        for row in range(tokens):
            yield from slotted.use(self.layer, ids, step, row)
        if next_prediction is not None:
            yield from next_prediction.prefetch(self.launches.recording, slotted, self.layer, step)
        if tokens:
            yield from self._looked_up(slotted, tokens, step)
        if next_prediction is not None:
            yield from next_prediction.wait_for_prediction(step)

    def _looked_up(self, slotted: SlottedLayers, tokens: int, step: StepShape) -> Iterator[Call]:
        launches, parts = self.launches, slotted.decode_matrices(self.layer)
        if step.misses == "cpu":
            yield from self._batch_with_host(parts, tokens, slotted.wait(self.layer, step))
        elif tokens >= GROUPED_TOKENS:
            yield from grouped_sum(launches, parts, step)
        else:
            yield from launches.by_item(parts, tokens)

    def _batch(self, slotted: SlottedLayers, ids: Span, step: StepShape) -> Iterator[Call]:
        launches, parts = self.launches, slotted.batch_matrices(self.layer)
        tokens = step.rows(launches.x.rows)
        access = slotted.prefill_access.access(self.layer)
        if access == "host":
            yield from self._batch_with_host(parts, tokens, slotted.wait(self.layer, step))
        elif access == "streamed":
            yield from self._streamed(slotted, parts, step)
        elif tokens >= GROUPED_TOKENS:
            yield from grouped_sum(launches, parts, step)
        else:
            yield from launches.by_item(parts, tokens)

    def _streamed(self, slotted: SlottedLayers, parts: Parts, step: StepShape) -> Iterator[Call]:
        """Yields the calls that compute experts chunk by chunk while the next chunks are copied."""
        launches, stream = self.launches, slotted.prefill_access.stream
        batches = self._batches_of_layer(step)
        tokens, all_chunks = step.rows(launches.x.rows), stream.chunks(self.layer)
        chunks = all_chunks if step.chunk is None else [all_chunks[step.chunk]]
        packed = packed_experts(launches)
        if packed is None:
            yield launches.group(tokens)
        yield from launches.x_to_f16(tokens)
        for chunk in chunks:
            some = range(chunk.first, chunk.first + chunk.count)
            if step.batch_index == batches[0]:
                yield from stream.wait_for(chunk, slotted.wait(self.layer, step))
            if packed is not None:
                yield from packed.values(parts, tokens, some, is_exact=step.is_exact)
            else:
                yield from launches.grouped_values(parts, tokens, chunk.first, chunk.count)
            if step.batch_index == batches[-1]:
                yield from stream.refill_after(chunk)
        if packed is None and len(chunks) == len(all_chunks):
            yield launches.merge(tokens)
        elif packed is None:
            yield launches.merge_group(tokens, some)

    def _batches_of_layer(self, step: StepShape) -> range:
        """Returns the batches that compute this layer: only the last one for outputs alone."""
        if self.launches.x.rows is Rows.OUTPUTS:
            return range(step.batch_index, step.batch_index + 1)
        return range(step.num_batches)

    def _batch_with_host(self, parts: Parts, tokens: int, wait: Wait) -> Iterator[Call]:
        """Yields the calls for a batch with the host's help, in parts for which there are rows."""
        packed, used = self.launches.scratch.packed, self.launches.ffn.used
        stride = tokens if packed is None else packed.num_rows // used
        for first in range(0, tokens, stride):
            some = replace(self, launches=self.launches.from_token(first))
            yield from some._with_host(parts, min(stride, tokens - first), wait)

    def _predictions(self, step: StepShape | None) -> Iterator[Call]:
        """Yields the calls that pass the experts predicted for the next layer to the host."""
        prediction, slotted = self.next_prediction, self.expert_weights.slotted
        assert slotted is not None
        if step is None or prediction is None or not (prediction.is_for_host and step.predicts):
            return
        yield from prediction.wait_for_prediction(step)
        ids, tokens = self.launches.recording.of(prediction.ids), step.rows(Rows.PREDICTED)
        yield self.expert_weights.host.predict(
            Items(ids, tokens, prediction.ids.width),
            slotted.decode_matrices(prediction.layer)[0].addresses, layer=prediction.layer,
        )  # fmt: skip

    def _with_host(self, parts: Parts, tokens: int, wait: Wait) -> Iterator[Call]:
        """Yields the calls by which the host computes missed experts beside the GPU."""
        launches, host = self.launches, self.expert_weights.host
        host_rows = launches.at(launches.scratch.host_rows)
        yield from self._predictions(launches.step)
        yield from host.request(
            launches.total(tokens).items, parts[0].addresses, launches.input,
            launches.input_weights, host_rows, columns=launches.x.width,
        )  # fmt: skip
        if tokens >= GROUPED_TOKENS or launches.uses_f16_rows:
            yield from launches.grouped(parts, tokens)
        else:
            yield from launches.item_values(parts, tokens)
        total = launches.total(tokens)
        yield from host.merge(launches.values, host_rows, total, layer=self.layer, wait=wait)
