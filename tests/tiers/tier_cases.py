"""Models and machines for the planner's tests, and strategies that draw them."""

from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from sharpi.hardware.info import HardwareInfo
from sharpi.settings import RunConfig
from sharpi.tiers.facts import LayerFacts, ModelFacts
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.planner import plan_tiers
from sharpi.tiers.scratch import BufferWidths
from sharpi.tiers.settings import EngineSettings, KnownSizes, PlanRequest, usable_vrams

MIB = 1 << 20
GIB = 1 << 30
MACHINE = HardwareInfo(
    physical_cores=2,
    logical_cores=2,
    total_ram=16 * GIB,
    free_ram=12 * GIB,
    instruction_set="avx2",
)
WIDTHS = BufferWidths(
    hidden=64, query=64, key=32, num_heads=4, recurrent=0, rope=16, vocab=512, num_experts=8,
    num_experts_per_token=2, num_moe_layers=4, expert_hidden=128, expert_hidden_blocks=2,
)  # fmt: skip
CONFIG = RunConfig(model=Path("m.gguf"))
SETTINGS = EngineSettings(256, 16, "int8", "avx2", 1, 1)


def request(hardware: HardwareInfo = MACHINE, **wishes: Any) -> PlanRequest:
    """Returns what a plan depends on; each wish is a field of the settings, sizes or hardware."""
    settings = replace(SETTINGS, **_taken(SETTINGS, wishes))
    experts = replace(CONFIG.experts, **_taken(CONFIG.experts, wishes))
    config = replace(CONFIG, experts=experts, **_taken(CONFIG, wishes))
    sizes = KnownSizes(**_taken(KnownSizes(), wishes))
    hardware = replace(hardware, **_taken(hardware, wishes))
    assert not wishes
    return PlanRequest(config, settings, sizes, usable_vrams(config, hardware), hardware.vram_rates)


def _taken(struct: Any, wishes: dict[str, Any]) -> dict[str, Any]:
    """Takes the wishes that are fields of a struct out of `wishes`."""
    return {name: wishes.pop(name) for name in struct.__struct_fields__ if name in wishes}


def plan_of(facts: ModelFacts, hardware: HardwareInfo = MACHINE, **wishes: Any) -> TierPlan:
    """Returns the plan for these wishes, as in `request`."""
    asked = request(hardware, **wishes)
    hardware = replace(hardware, **_taken(hardware, wishes))
    return plan_tiers(facts, hardware, asked.config, asked.settings, asked.sizes)


def moe_layer(expert_bytes: int = 3 * MIB, num_experts: int = 8) -> LayerFacts:
    return LayerFacts(
        dense_weights_bytes=5 * MIB,
        kv_page_bytes=64 * 1024,
        num_experts=num_experts,
        expert_bytes=expert_bytes,
        slot_bytes=expert_bytes + 4096,
    )


def model(*layers: LayerFacts, used: int = 2) -> ModelFacts:
    """Returns a model of 4 MiB of embedding and of output; by default four layers of 8 experts."""
    layers = layers or (moe_layer(),) * 4
    return ModelFacts(layers, 4 * MIB, 4 * MIB, used, WIDTHS)


def sizes(most: int) -> st.SearchStrategy[int]:
    """Draws sizes up to `most`, and often small ones."""
    return st.integers(0, most) | st.integers(0, 4 * MIB)


DENSE_LAYERS = st.builds(LayerFacts, dense_weights_bytes=sizes(64 * MIB), kv_page_bytes=sizes(MIB))
MOE_LAYERS = st.builds(
    lambda dense_weights, kv, experts, size: LayerFacts(
        dense_weights, kv, experts, size, (size // 4096 + 3) * 4096
    ),
    sizes(64 * MIB),
    sizes(MIB),
    st.integers(1, 24),
    sizes(16 * MIB),
)
MODELS = st.builds(
    lambda layers, embedding, output, used: ModelFacts(
        tuple(layers), embedding, output, used, WIDTHS
    ),
    st.lists(MOE_LAYERS | DENSE_LAYERS, min_size=1, max_size=6),
    sizes(64 * MIB),
    sizes(64 * MIB),
    st.integers(1, 8),
)
BUDGETS = st.integers(0, 3 * GIB) | st.integers(400 * MIB, 800 * MIB) | st.integers(0, 64 * MIB)
WISHES = st.fixed_dictionaries(
    {
        "context_size": st.integers(1, 4096),
        "batch_size": st.integers(1, 64),
        "ram": BUDGETS,
        "vram": st.none() | BUDGETS,
        "gpu_layers": st.none() | st.integers(0, 8),
        "moe_slots": st.none() | st.integers(1, 24),
        "cpu_moe": st.booleans(),
        "num_cpu_moe": st.integers(0, 3),
    }
)
