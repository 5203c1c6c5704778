"""Machines in network namespaces, with links that take time or lose packets, or are cut."""

import json
import re
from collections.abc import Iterator

import pytest
from lazy_packages import needs
from machines import FOREVER, PROMPT, Machines, ended
from network import LOSSY, ONE_GIGABIT, Network, why_not

pytestmark = [needs("torch"), pytest.mark.native, pytest.mark.slow]
NOTICED_SECONDS = 60  # 10 on a machine that has nothing else to do


@pytest.fixture(scope="module")
def links() -> None:
    """Skips the tests if no links can be made; only workers that run such tests check it."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"no links can be made here: {reason}")


@pytest.fixture
def network(request: pytest.FixtureRequest, links: None) -> Iterator[Network]:
    own = Network(getattr(request, "param", ONE_GIGABIT))
    yield own
    own.close()


@pytest.fixture
def machines(network: Network) -> Iterator[Machines]:
    own = Machines(address=network.address(0), namespaces=network.names)
    yield own
    own.close()


@pytest.mark.parametrize("network", [ONE_GIGABIT, LOSSY], indirect=True, ids=["slow", "lossy"])
def test_the_text_over_a_link_is_that_of_one_machine(machines: Machines) -> None:
    joined = machines.join()
    code, out, err = ended(machines.run(*PROMPT, "-n", "24"))
    assert code == 0, err
    assert ended(joined)[0] == 0
    assert (
        out == ended(machines.start("run", str(machines.model), *PROMPT, "-n", "24", "--no-log"))[1]
    )


@pytest.mark.parametrize("network", [ONE_GIGABIT], indirect=True)
def test_the_doctor_measures_both_ways_of_a_link(machines: Machines) -> None:
    joined = machines.join()
    doctor = machines.start("doctor", "--hosts", f"{machines.first},b", "--json")
    code, out, err = ended(doctor)
    assert (code, ended(joined)[0]) == (0, 0), err
    found = json.loads(out)
    assert [each["address"] for each in found["ranks"]] == ["10.123.0.1", "10.123.0.2"]
    assert {(each["interface"], each["mtu"]) for each in found["ranks"]} == {("link0", 1500)}
    assert [(each["from"], each["to"]) for each in found["links"]] == [(0, 1), (1, 0)]
    for each in found["links"]:
        assert each["latency_seconds"] > ONE_GIGABIT.delay
        assert 0 < each["bytes_per_second"] < ONE_GIGABIT.rate / 8


def test_a_cut_link_is_one_line_on_both_sides(machines: Machines, network: Network) -> None:
    joined = machines.join()
    running = machines.run(*PROMPT, *FOREVER)
    assert running.stdout is not None
    assert running.stdout.read(1)
    network.cut()
    for process, other in ((running, 1), (joined, 0)):
        code, _, err = ended(process, seconds=NOTICED_SECONDS)
        assert code == 1
        assert re.search(rf"^error: rank {other} on \S+ (does not answer|has ended)", err, re.M)
        assert "Traceback" not in err
