import numpy as np
import pytest
from device_arrays import empty, read, upload

from sharpi.device.device import Device
from sharpi.ops.cuda.launchers.elementwise import argmax


def _argmax(device: Device, logits: np.ndarray) -> list[int]:
    out = empty(device, len(logits) * 4)
    device.launch(argmax(upload(device, logits), out, rows=len(logits), width=logits.shape[1]))
    return list(read(device, out, np.int32, (len(logits),)).tolist())


@pytest.mark.parametrize("width", [1, 31, 1024, 5003])
def test_largest(device: Device, width: int) -> None:
    logits = np.random.default_rng(width).normal(size=(3, width)).astype(np.float32)
    assert _argmax(device, logits) == logits.argmax(axis=1).tolist()


@pytest.mark.parametrize("is_finite", [True, False])
def test_the_input_of_the_next_step(device: Device, is_finite: bool) -> None:
    logits = np.full((1, 40), -np.inf, np.float32)
    logits[0, 33] = 2.0 if is_finite else np.nan
    inputs = upload(device, np.array([7, 100], np.int32))
    out, next_inputs = empty(device, 4), (inputs.part(0, 4), inputs.part(4, 4))
    for _ in range(2):
        launch = argmax(upload(device, logits), out, rows=1, width=40, next_inputs=next_inputs)
        device.launch(launch)
    assert read(device, out, np.int32, (1,))[0] == (33 if is_finite else -1)
    assert read(device, inputs, np.int32, (2,)).tolist() == [33 if is_finite else 0, 102]


def test_equals_and_no_numbers(device: Device) -> None:
    logits = np.full((6, 2000), -5, np.float32)
    logits[0, [1999, 1030, 6]] = 3
    logits[1, ::2] = np.nan
    logits[2] = np.nan
    logits[3] = -np.inf
    logits[4, [1500, 40]] = np.inf
    logits[5, :1999] = np.nan
    assert _argmax(device, logits) == [6, -1, -1, -1, -1, -1]
