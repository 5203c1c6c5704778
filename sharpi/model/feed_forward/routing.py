"""Reads the router's settings from the file's metadata, with the architecture's defaults."""

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.spec import ArchitectureSpec
from sharpi.ops.interface import Router, Scoring

_SCORING_OF_KEY = {1: Scoring.SOFTMAX, 2: Scoring.SIGMOID, 3: Scoring.SOFTMAX_OF_CHOSEN}


def read_router(reader: HyperparameterReader, spec: ArchitectureSpec, is_corrected: bool) -> Router:
    """Returns the router settings that all layers share; `num_experts` is 0 in a dense model.

    `is_corrected` is True if the file has score corrections. Raises ModelFileError, which names
    the key at fault.
    """
    experts, used = reader.integer("expert_count", 0), reader.integer("expert_used_count", 0)
    if experts and not 0 < used <= experts:
        name = reader.name("expert_used_count")
        raise reader.fault(f"{name} is {used}, outside 1..{experts}, the number of experts")
    groups, used_groups = _groups(reader, experts)
    return Router(
        num_experts=experts,
        num_used=used,
        scoring=_scoring(reader, spec, is_corrected),
        normalise=reader.flag("expert_weights_norm", spec.router_normalises),
        scale=reader.number("expert_weights_scale", 0.0) or 1.0,
        num_groups=groups,
        groups_used=used_groups,
    )


def _groups(reader: HyperparameterReader, experts: int) -> tuple[int, int]:
    """Returns the number of expert groups, and how many of them a token may use.

    Returns (0, 0) if the model has no groups.
    """
    groups, used = (
        reader.integer("expert_group_count", 0),
        reader.integer("expert_group_used_count", 0),
    )
    if groups <= 1:
        return 0, 0
    if experts % groups:
        name = reader.name("expert_group_count")
        raise reader.fault(f"{name} is {groups}, which does not divide {experts}, the experts")
    if not 0 < used <= groups:
        name = reader.name("expert_group_used_count")
        raise reader.fault(f"{name} is {used}, outside 1..{groups}, the number of groups")
    return groups, used


def _scoring(reader: HyperparameterReader, spec: ArchitectureSpec, is_corrected: bool) -> Scoring:
    code = reader.integer("expert_gating_func", 0)
    if code == 0:
        return spec.corrected_scoring_kind if is_corrected else spec.scoring_kind
    if code not in _SCORING_OF_KEY:
        name = reader.name("expert_gating_func")
        raise reader.fault(f"{name} is {code}; 1, 2 and 3 are known")
    return _SCORING_OF_KEY[code]
