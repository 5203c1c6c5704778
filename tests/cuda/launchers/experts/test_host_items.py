import numpy as np
import pytest
from device_arrays import empty, read, upload

from sharpi.device.device import Device
from sharpi.ops.cuda.expert_slots.host_experts import Mailbox
from sharpi.ops.cuda.launchers.experts.experts import Items, RoutedSum
from sharpi.ops.cuda.launchers.experts.host_items import host_items, host_predictions, merge

EXPERTS, COLUMNS, ROWS = 6, 40, 300


def routes(tokens: int, used: int) -> np.ndarray:
    rng = np.random.default_rng([tokens, used])
    return np.stack([rng.permutation(EXPERTS)[:used] for _ in range(tokens)]).astype(np.int32)


@pytest.mark.parametrize(("tokens", "used"), [(1, 1), (1, 4), (3, 2), (90, 4)])
@pytest.mark.parametrize("here", [set(), {2, 5}, set(range(EXPERTS))], ids=["none", "two", "all"])
def test_the_host_gets_what_the_gpu_has_not(
    tokens: int, used: int, here: set[int], device: Device
) -> None:
    ids = routes(tokens, used)
    x = np.random.default_rng(1).standard_normal((tokens, COLUMNS)).astype(np.float32)
    weights = np.random.default_rng(2).uniform(0.1, 1, ids.shape).astype(np.float32)
    mailbox = Mailbox(device, tokens * used, COLUMNS, ROWS)
    host_rows = empty(device, 4 * ids.size)
    addresses = np.array([64 * (e in here) for e in range(EXPERTS)], np.uint64)
    device.launch(
        host_items(
            Items(upload(device, ids), tokens, used), upload(device, addresses), upload(device, x),
            upload(device, weights), host_rows, mailbox.host_items, columns=COLUMNS,
        )
    )  # fmt: skip
    items = [item for item, expert in enumerate(ids.ravel()) if expert not in here]
    wanted = np.full(ids.size, -1)
    wanted[items] = np.arange(len(items))
    assert np.array_equal(read(device, host_rows, np.int32, (ids.size,)), wanted)
    host = mailbox.host
    assert host.num_items[0] == len(items)
    assert np.array_equal(host.experts[: len(items)], ids.ravel()[items])
    assert np.array_equal(host.weights[: len(items)], weights.ravel()[items])
    assert np.array_equal(host.rows[: len(items)], x[np.array(items, int) // used])


@pytest.mark.parametrize("has_residual", [True, False])
def test_values_of_both_are_summed_by_ascending_expert(has_residual: bool, device: Device) -> None:
    """The sum has the same bits as that of a single processor."""
    tokens, used, scale = 3, 4, 0.5
    rng = np.random.default_rng(0)
    ids = routes(tokens, used)
    weights = rng.uniform(0.1, 1, ids.shape).astype(np.float32)
    values = rng.standard_normal((ids.size, ROWS)).astype(np.float32)
    residual = rng.standard_normal((tokens, ROWS)).astype(np.float32)
    is_on_host = rng.random(ids.size) < 0.5
    host_rows = np.where(is_on_host, np.cumsum(is_on_host) - 1, -1).astype(np.int32)
    on_gpu = np.where(is_on_host[:, None], np.float32(np.nan), values)
    out = empty(device, 4 * tokens * ROWS)
    total = RoutedSum(
        *(Items(upload(device, ids), tokens, used), ROWS, out, upload(device, weights)),
        *(upload(device, residual) if has_residual else None, scale),
    )
    both = upload(device, on_gpu), upload(device, values[is_on_host])
    device.launch(merge(*both, upload(device, host_rows), total))
    wanted = np.zeros((tokens, ROWS))
    for token, order in enumerate(np.argsort(ids, axis=1)):
        total = np.zeros(ROWS, np.float32)
        for rank in order:
            product = np.float64(weights[token, rank]) * values[token * used + rank]
            total = (product + total).astype(np.float32)
        start = residual[token] if has_residual else np.zeros(ROWS)
        wanted[token] = (np.float64(np.float32(scale)) * total + start).astype(np.float32)
    assert np.array_equal(read(device, out, np.float32, (tokens, ROWS)), wanted)


@pytest.mark.parametrize("tokens", [1, 2, 9])
def test_the_host_is_told_what_is_predicted_and_not_here(tokens: int, device: Device) -> None:
    """Best ranks come first, each expert once; -1 stands for none."""
    experts, used = 50, 4
    rng = np.random.default_rng(tokens)
    ids = np.stack([rng.permutation(experts)[:used] for _ in range(tokens)]).astype(np.int32)
    ids[0, -1] = -1
    addresses = np.where(np.arange(experts) % 3 == 0, np.uint64(64), np.uint64(0))
    mailbox = Mailbox(device, tokens * used, COLUMNS, ROWS)
    device.launch(
        host_predictions(
            Items(upload(device, ids), tokens, used), upload(device, addresses),
            mailbox.predicted, layer=7,
        )
    )  # fmt: skip
    listed = list(dict.fromkeys(e for e in ids.T.ravel().tolist() if e >= 0))[:32]
    wanted = [e for e in listed if e % 3]
    predicted = mailbox.host.predicted.tolist()
    assert predicted[:2] == [len(wanted), 7]
    assert predicted[2 : 2 + len(wanted)] == wanted
