"""The options for running one model on several machines."""

from typing import Annotated, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.options.option import option
from sharpi.config import ClusterConfig, RemoteExperts, RunConfig
from sharpi.errors import UsageError

LinkOption = Annotated[
    str | None,
    option(
        "--link",
        "The network interface that the machines meet on.",
        "INTERFACE",
        show_default="the one that leads to the first machine",
    ),
]
InsecureLinkOption = Annotated[
    bool,
    option(
        "--insecure-link",
        "Allow an interface with a public address: whoever reaches it can join.",
    ),
]


class ClusterOptions(Struct, frozen=True):
    """The options that name the machines of a group, and how they communicate."""

    heading: ClassVar = "Several machines"

    hosts: Annotated[
        str | None,
        option(
            "--hosts",
            "Run the model on several machines: the address of this one, then a name for each"
            " other, separated by commas. On those run `sharpi join ADDRESS MODEL`.",
            "A,B",
        ),
    ] = None
    link: LinkOption = None
    insecure_link: InsecureLinkOption = False
    remote_experts: Annotated[
        RemoteExperts,
        option(
            "--remote-experts",
            "Let machines with experts in RAM compute them for machines that lack them; auto: where"
            " that is measured to be faster than reading the experts from disk.",
        ),
    ] = "auto"

    def extend(self, config: RunConfig, *, joins: bool) -> RunConfig:
        """Returns `config` with the group of --hosts, or of torchrun if it started the process.

        `joins` is True for `sharpi join`, which may have --link without --hosts. Raises UsageError
        for options that would have no effect.
        """
        from sharpi.cluster.rendezvous import own_gpu, torchrun_rendezvous

        if torchrun_rendezvous() is not None:
            if self.hosts is not None:
                raise UsageError("--hosts and torchrun both say which machines there are; keep one")
            gpus = config.gpus or own_gpu()
            return replace(config, cluster=self._config(()), gpus=gpus)
        if self.hosts is None and not joins and (self.link or self.insecure_link):
            raise UsageError("--link and --insecure-link are of use with --hosts only")
        if self.hosts is None:
            return replace(config, cluster=self._config(())) if joins else config
        return replace(config, cluster=self.first_of())

    def first_of(self) -> ClusterConfig:
        """Returns the group of --hosts, with this machine as the first.

        Raises UsageError for fewer than two hosts.
        """
        names = tuple(name.strip() for name in (self.hosts or "").split(","))
        if len(names) < 2 or not all(names):
            raise UsageError(f"--hosts {self.hosts!r}: give two machines or more, as in 10.0.0.1,b")
        return self._config(names)

    def _config(self, hosts: tuple[str, ...]) -> ClusterConfig:
        hosts, port = _with_port(hosts)
        return ClusterConfig(
            hosts,
            port=port,
            link=self.link,
            allows_public=self.insecure_link,
            remote_experts=self.remote_experts,
        )


def _with_port(hosts: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """Splits the port off the first host, such as 10.0.0.1:29500; returns hosts and port."""
    if not hosts:
        return hosts, ClusterConfig().port
    address, port = split_port(hosts[0])
    return (address, *hosts[1:]), port


def split_port(text: str) -> tuple[str, int]:
    """Splits HOST:PORT, with a default for a missing port; raises UsageError for a bad one."""
    address, colon, digits = text.partition(":")
    if not colon:
        return address, ClusterConfig().port
    if not digits.isdecimal() or not 0 < int(digits) < 65536:
        raise UsageError(f"{text!r}: {digits!r} is not a port; give 1 to 65535")
    return address, int(digits)
