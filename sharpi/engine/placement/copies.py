"""Decides which weights are copied out of the mapped file."""

from sharpi.config import RunConfig
from sharpi.errors import UsageError
from sharpi.gguf.copied import TensorCopies
from sharpi.gguf.reader import GgufFile
from sharpi.gguf.tensor_summary import is_expert_matrix
from sharpi.model.config import ModelConfig
from sharpi.model.extra_tensors import is_extra
from sharpi.tiers.plan import TierPlan


def weight_copies(
    file: GgufFile, config: RunConfig, model: ModelConfig, plan: TierPlan | None
) -> TensorCopies | None:
    """Makes room for copies, where they were asked for or the file exceeds the RAM.

    If experts are read from disk, the tensors that every token needs are copied: the page cache
    could drop them for the sake of experts. Raises UsageError where `--load copy` has no room.
    """
    reads_experts = plan is not None and not plan.is_mapped
    if not reads_experts and config.load != "copy":
        return None
    if plan is None:
        raise UsageError(f"--load copy: {file.path} is larger than the RAM that is free")
    copied = [
        tensor
        for name, tensor in file.tensors.items()
        if not is_extra(name, model.num_layers) and not (reads_experts and is_expert_matrix(name))
    ]
    return TensorCopies(file.parts, copied)
