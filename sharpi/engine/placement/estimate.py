"""Plans a model of the catalogue before it is downloaded, from its approximate sizes."""

from pathlib import Path

from msgspec.structs import replace

from sharpi.hardware.info import HardwareInfo
from sharpi.hub.catalogue import BITS, CatalogueEntry
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.settings import RunConfig
from sharpi.tiers.facts import LayerFacts, ModelFacts
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.planner import plan_tiers
from sharpi.tiers.scratch import BufferWidths, scratch_bytes
from sharpi.tiers.settings import EngineSettings

CONTEXT = 4096
_FEW_TOKENS = 2  # whose experts the smallest useful slots hold


def estimate(entry: CatalogueEntry, quant: str, hardware: HardwareInfo) -> TierPlan:
    """Returns the plan for a context of 4096 tokens on this machine."""
    config, threads = RunConfig(model=Path()), hardware.physical_cores
    settings = EngineSettings(
        CONTEXT, config.batch_size, "int8", hardware.instruction_set, threads, threads
    )
    alone = replace(hardware, free_vrams=())  # the first GPU
    return plan_tiers(approximate_facts(entry, quant), alone, config, settings)


def whole_bytes(entry: CatalogueEntry, quant: str, hardware: HardwareInfo) -> int:
    """Estimates the bytes of RAM that the model takes with all of its weights in RAM."""
    facts = approximate_facts(entry, quant)
    return entry.file_bytes(quant) + _beside_weights(facts, hardware)


def least_bytes(entry: CatalogueEntry, quant: str, hardware: HardwareInfo) -> int:
    """Estimates the least bytes of RAM for a useful speed, with slots for experts of two tokens."""
    facts = approximate_facts(entry, quant)
    slots = sum(
        min(layer.num_experts, _FEW_TOKENS * entry.num_used) * layer.slot_bytes
        for layer in facts.layers
    )
    return facts.dense_weights_bytes + slots + _beside_weights(facts, hardware)


def approximate_facts(entry: CatalogueEntry, quant: str) -> ModelFacts:
    """Returns a model's approximate sizes from its parameter counts, with all layers alike."""
    per_weight = BITS[quant] / 8
    expert = _expert_parameters(entry) * per_weight
    table = int(entry.vocabulary * entry.hidden_size * per_weight)
    dense = entry.file_bytes(quant) - int(entry.num_experts * expert) - 2 * table
    layer = LayerFacts(
        dense_weights_bytes=max(0, dense) // entry.num_layers,
        kv_page_bytes=2 * entry.kv_width * PAGE_POSITIONS,
        num_experts=entry.num_experts,
        expert_bytes=int(expert / entry.num_layers),
        slot_bytes=int(expert / entry.num_layers),
    )
    layers = (layer,) * entry.num_layers
    return ModelFacts(layers, table, table, entry.num_used, _widths(entry))


def _expert_parameters(entry: CatalogueEntry) -> float:
    """Returns the sum over all layers of the parameters of one expert."""
    unused = entry.num_experts - entry.num_used
    return (entry.parameters - entry.active) * 1e9 / unused if entry.num_experts else 0.0


def _widths(entry: CatalogueEntry) -> BufferWidths:
    expert_hidden = 0
    if entry.num_experts:
        per_layer = _expert_parameters(entry) / entry.num_layers
        expert_hidden = int(per_layer / (3 * entry.hidden_size))
    return BufferWidths(
        hidden=entry.hidden_size,
        query=2 * entry.hidden_size,
        key=entry.kv_width // 2,
        num_heads=max(1, entry.hidden_size // 64),
        recurrent=0,
        rope=64,
        vocab=entry.vocabulary,
        num_experts=entry.num_experts,
        num_experts_per_token=entry.num_used,
        num_moe_layers=entry.num_layers if entry.num_experts else 0,
        expert_hidden=expert_hidden,
        expert_hidden_blocks=-(-expert_hidden // 256),
    )


def _beside_weights(facts: ModelFacts, hardware: HardwareInfo) -> int:
    """Returns the bytes of the KV cache and the buffers for a context of 4096 tokens."""
    pages = CONTEXT // PAGE_POSITIONS
    scratch = scratch_bytes(
        facts.widths,
        batch_size=512,
        num_positions=CONTEXT,
        rounding="int8",
        num_threads=hardware.physical_cores,
        num_outputs=1,
    )
    return pages * sum(layer.kv_page_bytes for layer in facts.layers) + scratch
