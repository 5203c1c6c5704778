"""Joins the machines that run one model together, for commands that load a model."""

from typing import TYPE_CHECKING

import typer

from sharpi.settings import ClusterConfig, RunConfig

if TYPE_CHECKING:
    from sharpi.cluster.group import Group
    from sharpi.cluster.link_rate import LinkRate
    from sharpi.cluster.rendezvous import Interface, Rendezvous
    from sharpi.engine.cluster.cluster_loader import ClusterLoader

_MODEL, _LINKS = "model", "links"  # the purposes of a group


def join(config: RunConfig, cluster: ClusterConfig) -> "ClusterLoader":
    """Joins the group of machines that run one model; raises ClusterError if that fails.

    Raises UsageError for options that work on a single machine only. If the first machine only
    measures the links, takes part in the measurement, and then raises Typer's Exit.
    """
    from sharpi.cluster.group import join_group
    from sharpi.engine.cluster.cluster_loader import ClusterLoader, refuse_for_ranks

    refuse_for_ranks(config)
    group = join_group(_rendezvous(cluster))
    if _purpose(group, _MODEL) == _LINKS:
        _links(group)
        group.close()
        raise typer.Exit
    return ClusterLoader(group, cluster)


def measured_links(
    cluster: ClusterConfig,
) -> "tuple[tuple[str, ...], list[Interface], list[LinkRate]]":
    """Returns hosts, their interfaces, and measured link rates; raises ClusterError."""
    from sharpi.cluster.group import join_group

    with join_group(_rendezvous(cluster)) as group:
        _purpose(group, _LINKS)
        return group.hosts, *_links(group)


def _purpose(group: "Group", own: str) -> str:
    """Returns what the first rank announces, its `own`: to run a model, or to measure links."""
    if group.rank == 0:
        group.publish("purpose", own)
    return group.read_value("purpose", 0, str)


def _links(group: "Group") -> "tuple[list[Interface], list[LinkRate]]":
    from sharpi.cluster.link_rate import measure_links

    return group.exchange("interface", group.interface), measure_links(group)


def follows(config: RunConfig) -> bool:
    """Returns whether another machine receives the requests and this process only runs layers."""
    if config.cluster is None or config.cluster.hosts:
        return False
    from sharpi.cluster.rendezvous import torchrun_rendezvous

    rendezvous = torchrun_rendezvous()
    return rendezvous is None or rendezvous.rank != 0


def _rendezvous(cluster: ClusterConfig) -> "Rendezvous":
    from msgspec.structs import replace

    from sharpi.cluster.rendezvous import Rendezvous, torchrun_rendezvous

    rendezvous = torchrun_rendezvous()
    if rendezvous is None and cluster.first:
        rendezvous = Rendezvous(cluster.first, cluster.port)
    elif rendezvous is None:
        rendezvous = Rendezvous(
            cluster.hosts[0], cluster.port, rank=0, size=len(cluster.hosts), is_own=True
        )
    return replace(rendezvous, link=cluster.link, allows_public=cluster.allows_public)
