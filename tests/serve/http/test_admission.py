"""Places of clients: each has its own, and they take turns."""

import threading
from collections.abc import Callable
from contextlib import ExitStack

import httpx
import pytest
from served_demo import MODEL, ServedDemo

from sharpi.serve.host.model_host import ModelHostSettings
from sharpi.serve.http.access import Admission, client_of, current_client
from sharpi.serve.http.errors import ApiError


def test_a_client_that_holds_all_its_places_leaves_others_theirs() -> None:
    admission = Admission(2)
    with ExitStack() as held:
        for client in ("a", "a", "b"):
            held.enter_context(admission.admitted(client))
            assert current_client.get() == client
        with pytest.raises(ApiError) as caught, admission.admitted("a"):
            pass
        assert caught.value.status == 429
        assert caught.value.headers["Retry-After"]
    assert current_client.get() == ""
    with admission.admitted("a"):
        pass


def test_all_clients_together_have_a_few_times_as_many() -> None:
    admission = Admission(1)
    with ExitStack() as held:
        for client in "abcd":
            held.enter_context(admission.admitted(client))
        with pytest.raises(ApiError), admission.admitted("e"):
            pass


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_a_client_is_an_address(address: str, client: str) -> None:
    assert client_of({"client": (address, 5)}) == client
    assert client_of({"client": None}) == ""


@pytest.mark.slow
@pytest.mark.native
def test_many_requests_of_one_address_do_not_hold_up_another(
    serve_demo: Callable[..., ServedDemo],
) -> None:
    server = serve_demo(host=ModelHostSettings(MODEL, max_parallel=1, max_waiting=4))
    body = {"prompt": "Once", "max_tokens": 200, "temperature": 0, "ignore_eos": True}
    statuses: list[int] = []

    def ask() -> None:
        with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client:
            statuses.append(client.post("/v1/completions", json=body).status_code)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    server.wait_until(lambda: statuses == [429])  # five have places
    transport = httpx.HTTPTransport(local_address="127.0.0.2")
    with httpx.Client(base_url=server.url, timeout=120, transport=transport) as other:
        response = other.post("/v1/completions", json=body | {"max_tokens": 1})
    assert response.status_code == 200
    assert len(statuses) <= 3, "the other address waited for all requests of the first"
    for thread in threads:
        thread.join(120)
    assert statuses.count(200) == 5
