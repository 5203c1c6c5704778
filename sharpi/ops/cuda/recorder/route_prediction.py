"""RoutePrediction: which experts the next layer will want, predicted beside the work of this
one.
"""

from collections.abc import Iterator

from msgspec import Struct

from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers
from sharpi.ops.cuda.recorded import Call, Calls, RecordedTensor, SideStream, StepShape, WaitFor
from sharpi.ops.cuda.recording import Recording


class RoutePrediction(Struct, frozen=True, eq=False):
    """`operations` find `ids`, the predictions for `layer`, by `values`."""

    layer: int
    ids: RecordedTensor
    operations: tuple[Calls, ...]
    values: tuple[RecordedTensor, ...]

    def predict(self, step: StepShape) -> Iterator[Call]:
        """Beside what the layer before does next; `wait_for_prediction` comes before its end."""
        if step.predicts:
            calls = [call for operation in self.operations for call in operation(step)]
            yield SideStream((self, "predict"), tuple(calls))

    def wait_for_prediction(self, step: StepShape) -> Iterator[Call]:
        """The memory of `values` is free for others from now on."""
        if step.predicts:
            yield WaitFor((self, "predict"))

    def fetch(
        self, recording: Recording, layers: SlottedLayers, after: int, step: StepShape
    ) -> Iterator[Call]:
        """Once layer `after` has said what it loads: predicted experts come if the link is idle."""
        if step.predicts:
            ids = recording.of(self.ids)
            yield SideStream((self, "fetch"), tuple(layers.prefetch(self.layer, ids, after)))

    def fetched(self, step: StepShape) -> Iterator[Call]:
        """Before the layer itself looks its experts up."""
        if step.predicts:
            yield WaitFor((self, "fetch"))


class RoutePredictions:
    """Those of a recording, in the order of the layers: each is made in the layer before."""

    def __init__(self) -> None:
        self._next: RoutePrediction | None = None
        self._now: RoutePrediction | None = None

    def add(self, route_prediction: RoutePrediction) -> None:
        """The layer being recorded predicts for the next one."""
        self._next = route_prediction

    def take(self, *, is_slotted: bool) -> tuple[RoutePrediction | None, RoutePrediction | None]:
        """For the layer being recorded, and by it for the next one.

        Nobody predicts beside a layer that has all its experts: whether it leaves the link idle, it
        does not say.
        """
        following, self._next = self._next if is_slotted else None, None
        own, self._now = self._now, following
        return own, following


def of_predictions(value: RecordedTensor) -> RecordedTensor:
    """The same memory as the one row that predictions are made from."""
    return RecordedTensor(value.width, Rows.PREDICTED, value.floats, value.source)
