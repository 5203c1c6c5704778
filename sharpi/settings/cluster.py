"""The settings of a group of machines that run one model together."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Struct

from sharpi.settings.option import Option

RemoteExperts = Literal["auto", "on", "off"]
PORT = 29400


def host_and_port(text: str) -> tuple[str, int]:
    """Splits HOST:PORT, with a default for a missing port; raises ValueError for a bad one."""
    address, colon, digits = text.partition(":")
    if not colon:
        return address, PORT
    if not digits.isdecimal() or not 0 < int(digits) < 65536:
        raise ValueError(f"{text!r}: {digits!r} is not a port; give 1 to 65535")
    return address, int(digits)


def hosts_of(text: str) -> dict[str, Any]:
    """Returns the fields that a list of hosts sets; raises ValueError for fewer than two."""
    names = [name.strip() for name in text.split(",")]
    if len(names) < 2 or not all(names):
        raise ValueError(f"{text!r}: give two machines or more, as in 10.0.0.1,b")
    address, port = host_and_port(names[0])
    return {"hosts": (address, *names[1:]), "port": port}


class ClusterConfig(Struct, frozen=True):
    """The machines of a group; the first one receives the requests."""

    GROUP: ClassVar = "Several machines"

    # The first is this machine's address; empty to join another machine's run.
    hosts: Annotated[
        tuple[str, ...],
        Option(
            "--hosts A,B",
            "Run the model on several machines: the address of this one, then a name for each"
            " other, separated by commas. On those run `sharpi join ADDRESS MODEL`.",
            parse=hosts_of,
        ),
    ] = ()
    first: str = ""  # the first machine's address, to join its run
    port: int = PORT  # where the first listens
    link: Annotated[
        str | None,
        Option(
            "--link INTERFACE",
            "The network interface that the machines meet on.",
            default="the one that leads to the first machine",
        ),
    ] = None
    allows_public: Annotated[  # the interface may have a public address
        bool,
        Option("--insecure-link", "Allow a public address, where whoever reaches it can join."),
    ] = False
    remote_experts: Annotated[
        RemoteExperts,
        Option(
            "--remote-experts",
            "Let machines with experts in RAM compute them for machines that lack them; auto: where"
            " that is measured to be faster than reading the experts from disk.",
        ),
    ] = "auto"
    only_lends: bool = False  # this machine runs no layers, and lends its RAM for experts
