"""RoutePrediction: predicts the next layer's experts on the side stream, and prefetches them."""

from collections.abc import Iterator

from msgspec import Struct

from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers
from sharpi.ops.cuda.recorded import (
    Call,
    Calls,
    RecordedTensor,
    Routes,
    SideStream,
    StepShape,
    WaitFor,
)
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.interface import Router


class RoutePrediction(Struct, frozen=True, eq=False):
    """The recorded prediction of one layer's experts, made while the previous layer computes."""

    layer: int
    ids: RecordedTensor  # the predicted experts, best first
    operations: tuple[Calls, ...]  # the operations that compute the ids
    values: tuple[RecordedTensor, ...]  # all values that the operations use
    is_of_all: bool = False  # one prediction stands for all tokens of a step
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
            tokens = 1 if self.is_of_all else step.rows(Rows.PREDICTED)
            launches = layers.prefetch(self.layer, ids, after, tokens)
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


def most_used(recording: Recording, slotted: SlottedLayers, router: Router) -> RoutePrediction:
    """Records a prediction for a layer: the experts without a slot that it has used most."""
    with recording.record_separately() as operations:
        ids = recording.value(router.num_used, Rows.PREDICTED)
        recording.append(lambda step: (slotted.most_used(router.layer, recording.of(ids)),))
    return RoutePrediction(router.layer, ids, tuple(operations), (ids,), is_of_all=True)


def from_last_layer(
    recording: Recording, slotted: SlottedLayers, router: Router, route: Routes
) -> RoutePrediction:
    """Records the prediction of a layer's experts from the previous layer's route."""
    with recording.record_separately() as operations:
        ids = recording.value(router.num_used, Rows.PREDICTED)
        recording.append(
            lambda step: slotted.predict_from_last_layer(
                router.layer, route.span(step), recording.of(ids), step.rows(Rows.PREDICTED)
            )
        )
    return RoutePrediction(router.layer, ids, tuple(operations), (ids,))


def of_predictions(value: RecordedTensor) -> RecordedTensor:
    """Returns a view of a value as the input of predictions: with rows of the kind PREDICTED."""
    return RecordedTensor(value.width, Rows.PREDICTED, value.floats, value.source)
