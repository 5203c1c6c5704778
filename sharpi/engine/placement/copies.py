"""Decides which weights are copied out of the mapped file."""

from sharpi.config import RunConfig
from sharpi.errors import UsageError
from sharpi.gguf.copied import TensorCopies
from sharpi.gguf.reader import GgufFile
from sharpi.gguf.tensor_summary import is_expert_matrix
from sharpi.model.config import ModelConfig
from sharpi.model.extra_tensors import is_extra
from sharpi.tiers.plan import TierPlan

EMBEDDING = "token_embd.weight"


def weight_copies(
    file: GgufFile, config: RunConfig, model: ModelConfig, plan: TierPlan | None
) -> TensorCopies | None:
    """Allocates memory for copies of weights; returns None if the mapped file is used.

    Weights are copied with `--load copy`, and in two more cases. Experts that a GPU reads from RAM
    and the embedding beside them are copied unless mapping was asked for: memory in huge pages can
    be page-locked everywhere, as one range, and is read faster. If experts are read from disk, the
    tensors that every token needs are copied, since the page cache could evict them in favour of
    experts. Raises UsageError if `--load copy` has no room.
    """
    reads_experts = plan is not None and not plan.is_mapped
    if not reads_experts and config.load != "copy":
        return _for_gpu(file, config, plan) if config.load == "auto" and plan is not None else None
    if plan is None:
        raise UsageError(f"--load copy: {file.path} is larger than the RAM that is free")
    copied = [
        tensor
        for name, tensor in file.tensors.items()
        if _is_used(name, model) and not (reads_experts and is_expert_matrix(name))
    ]
    return TensorCopies(file.parts, copied)


def _is_used(name: str, model: ModelConfig) -> bool:
    is_of_head = model.has_head and name.startswith(f"blk.{model.num_layers}.")
    return is_of_head or not is_extra(name, model.num_layers)


def _for_gpu(file: GgufFile, config: RunConfig, plan: TierPlan) -> TensorCopies | None:
    """Allocates copies of the experts and embedding that a GPU reads from RAM.

    Returns None if it reads nothing from RAM, or if there is no room.
    """
    if config.cpu_moe:
        return None
    read = {f"blk.{i}" for i in plan.slotted_layers if i >= config.num_cpu_moe}
    copied = [
        tensor
        for name, tensor in file.tensors.items()
        if is_expert_matrix(name) and ".".join(name.split(".", 2)[:2]) in read
    ]
    if _reads_embedding(plan) and "output.weight" in file.tensors:
        copied.append(file.tensors[EMBEDDING])
    try:
        return TensorCopies(file.parts, copied) if copied else None
    except MemoryError:
        return None


def _reads_embedding(plan: TierPlan) -> bool:
    """Returns True if one GPU has all layers, but no room for the embedding."""
    return len(plan.gpus) == 1 and plan.first_gpu_layer == 0 and not plan.gpus[0].embeds
