"""Where ranks meet: the interface, by name or route, and what torchrun's variables say."""

import socket
from collections.abc import Callable

import pytest

from sharpi.cluster import rendezvous
from sharpi.cluster.rendezvous import (
    Interface,
    find_interface,
    own_gpu,
    refuse_unknown_name,
    torchrun_rendezvous,
)
from sharpi.errors import ClusterError, LinkError


def test_loopback_leads_to_loopback() -> None:
    found = find_interface(None, "127.0.0.1")
    assert (found.name, found.address) == ("lo", "127.0.0.1")
    assert found == find_interface("lo", "10.0.0.1")
    assert found.mtu > 1000


def test_an_unknown_interface_is_refused() -> None:
    with pytest.raises(ClusterError, match=r"--link wlan9: there is no such interface, but .*lo"):
        find_interface("wlan9", "127.0.0.1")


def test_a_public_address_needs_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    public = Interface("eth0", "8.8.8.8", 1500)
    monkeypatch.setattr(rendezvous, "_named", lambda name: public)
    with pytest.raises(ClusterError, match="eth0 has the public address"):
        find_interface("eth0", "8.8.4.4")
    assert find_interface("eth0", "8.8.4.4", allows_public=True) is public


@pytest.mark.parametrize("answer", [socket.EAI_NONAME, socket.EAI_NODATA])
def test_a_name_that_no_server_knows_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", _answering(answer))
    with pytest.raises(LinkError, match="box9: no machine has this name"):
        refuse_unknown_name("box9")


def test_a_name_server_that_does_not_answer_refuses_no_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", _answering(socket.EAI_AGAIN))
    refuse_unknown_name("box9")


def _answering(code: int) -> Callable[..., None]:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(code, "as the test says")

    return resolve


def test_torchrun_names_the_rendezvous() -> None:
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    rendezvous = torchrun_rendezvous(variables)
    assert rendezvous is not None
    assert (rendezvous.address, rendezvous.port) == ("10.0.0.1", 29500)
    assert (rendezvous.rank, rendezvous.size) == (1, 2)
    assert torchrun_rendezvous({}) is None


@pytest.mark.parametrize(("rank", "size"), [("x", "2"), ("2", "2"), ("-1", "2")])
def test_variables_that_make_no_sense_are_refused(rank: str, size: str) -> None:
    with pytest.raises(ClusterError, match="RANK"):
        torchrun_rendezvous({"RANK": rank, "WORLD_SIZE": size})


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (1,)),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}, (0,)),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, ()),
        ({"LOCAL_RANK": "x", "LOCAL_WORLD_SIZE": "2"}, ()),
        ({}, ()),
    ],
)
def test_processes_of_one_machine_take_a_gpu_each(
    variables: dict[str, str], expected: tuple[int, ...]
) -> None:
    assert own_gpu(variables) == expected
