"""Launches the kernel that prepares heads and puts each behind other values."""

from typing import NamedTuple

import numpy as np

from sharpi.device.launch import Argument, Kernel, Launch, is_same_address
from sharpi.ops.cuda.launchers.attention.heads import (
    NO_GROUP,
    GroupArguments,
    HeadsArguments,
)
from sharpi.ops.cuda.launchers.named_arguments import argument_indices, flat, named
from sharpi.ops.cuda.launchers.split_join import JoinArguments

_BLOCK = 128


class JoinHeadsArguments(NamedTuple):
    """The arguments of join_heads.cu."""

    heads: GroupArguments
    first: Argument
    out: Argument
    width: Argument
    interleaved: Argument


def with_join(heads: Launch, join: Launch) -> Launch | None:
    """Returns one launch for `heads` in place and for a `join` with each of them behind a run.

    Returns None if there are other heads, or if they are not the second part of `join`.
    """
    given = named(HeadsArguments, heads.arguments)
    following = JoinArguments(*join.arguments)
    group = given.a
    is_alone = given.b == NO_GROUP and group.pages is None
    is_second = is_same_address(group.x, following.second) and not is_same_address(
        group.x, following.first
    )
    if not (is_alone and is_second and group.head_dim == following.second_width):
        return None
    tokens, num_heads, dim = given.tokens, group.num_heads, group.head_dim
    assert isinstance(tokens, np.int32)
    assert isinstance(num_heads, np.int32)
    assert isinstance(dim, np.int32)
    return Launch(
        Kernel("join_heads", "join_heads"),
        grid=(int(tokens * num_heads), 1, 1),
        block=_BLOCK,
        arguments=flat(
            JoinHeadsArguments(
                *(group, following.first, following.out, following.width, given.interleaved)
            )
        ),
        writes=argument_indices(JoinHeadsArguments, "heads.x", "out"),
        shared_bytes=4 * int(dim),
    )
