"""Counts the kernel launches of a decoded token, without a GPU, a model file or weights.

The shapes are those of Qwen3-30B-A3B, gpt-oss-120b and DeepSeek-V3, according to their config.json.
The quant types are those of their usual files: Q4_K_M, MXFP4 with Q8_0, and Q4_K_M.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.check_step import Findings

from sharpi.device.counting import CountingDevice
from sharpi.device.launch import Launch
from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.backends.gpu.slots import GpuSlots
from sharpi.engine.backends.recorded_part import PartModel
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.gguf.header import TensorInfo
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.quant_types import QuantType, row_bytes
from sharpi.gguf.reader import GgufFile
from sharpi.model.config import ModelConfig, read_config
from sharpi.model.weights import load_weights
from sharpi.ops.cuda.expert_slots.slot_memories import SlotSettings
from sharpi.ops.cuda.expert_slots.slot_state import FirstSlots
from sharpi.ops.cuda.launchers.experts.slot_policy import PolicyRules
from sharpi.tiers.settings import EngineSettings

F32, Q4_K, Q6_K = QuantType.F32, QuantType.Q4_K, QuantType.Q6_K
Q8_0, MXFP4 = QuantType.Q8_0, QuantType.MXFP4
Shapes = dict[str, tuple[QuantType, tuple[int, ...]]]  # outer dimensions first
_CONTEXT = 8192


def qwen3moe(layer: int) -> Shapes:
    """Returns the types and shapes of the tensors in a layer of Qwen3-30B-A3B in Q4_K_M."""
    wide = Q6_K if layer % 2 else Q4_K  # of values and down
    return {
        "attn_norm": (F32, (2048,)),
        "attn_q": (Q4_K, (4096, 2048)),
        "attn_k": (Q4_K, (512, 2048)),
        "attn_v": (wide, (512, 2048)),
        "attn_q_norm": (F32, (128,)),
        "attn_k_norm": (F32, (128,)),
        "attn_output": (Q4_K, (2048, 4096)),
        "ffn_norm": (F32, (2048,)),
        "ffn_gate_inp": (F32, (128, 2048)),
        "ffn_gate_exps": (Q4_K, (128, 768, 2048)),
        "ffn_up_exps": (Q4_K, (128, 768, 2048)),
        "ffn_down_exps": (wide, (128, 2048, 768)),
    }


def gpt_oss(layer: int) -> Shapes:
    """Returns the types and shapes of the tensors in a layer of gpt-oss-120b."""
    return {
        "attn_norm": (F32, (2880,)),
        "attn_q": (Q8_0, (4096, 2880)),
        "attn_k": (Q8_0, (512, 2880)),
        "attn_v": (Q8_0, (512, 2880)),
        "attn_output": (Q8_0, (2880, 4096)),
        "attn_sinks": (F32, (64,)),
        "post_attention_norm": (F32, (2880,)),
        "ffn_gate_inp": (F32, (128, 2880)),
        "ffn_gate_exps": (MXFP4, (128, 2880, 2880)),
        "ffn_up_exps": (MXFP4, (128, 2880, 2880)),
        "ffn_down_exps": (MXFP4, (128, 2880, 2880)),
        "attn_q.bias": (F32, (4096,)),
        "attn_k.bias": (F32, (512,)),
        "attn_v.bias": (F32, (512,)),
        "attn_output.bias": (F32, (2880,)),
        "ffn_gate_inp.bias": (F32, (128,)),
        "ffn_gate_exps.bias": (F32, (128, 2880)),
        "ffn_up_exps.bias": (F32, (128, 2880)),
        "ffn_down_exps.bias": (F32, (128, 2880)),
    }


def deepseek2(layer: int) -> Shapes:
    """Returns the types and shapes of the tensors in a layer of DeepSeek-V3 in Q4_K_M.

    The first three layers have no experts.
    """
    wide = Q6_K if layer % 2 else Q4_K
    attention: Shapes = {
        "attn_norm": (F32, (7168,)),
        "attn_q_a": (Q4_K, (1536, 7168)),
        "attn_q_a_norm": (F32, (1536,)),
        "attn_q_b": (Q4_K, (24576, 1536)),
        "attn_kv_a_mqa": (Q4_K, (576, 7168)),
        "attn_kv_a_norm": (F32, (512,)),
        "attn_k_b": (Q8_0, (128, 512, 128)),
        "attn_v_b": (Q8_0, (128, 128, 512)),
        "attn_output": (Q4_K, (7168, 16384)),
        "ffn_norm": (F32, (7168,)),
    }
    if layer < 3:
        return attention | {
            "ffn_gate": (Q4_K, (18432, 7168)),
            "ffn_up": (Q4_K, (18432, 7168)),
            "ffn_down": (wide, (7168, 18432)),
        }
    return attention | {
        "ffn_gate_inp": (F32, (256, 7168)),
        "exp_probs_b.bias": (F32, (256,)),
        "ffn_gate_exps": (Q4_K, (256, 2048, 7168)),
        "ffn_up_exps": (Q4_K, (256, 2048, 7168)),
        "ffn_down_exps": (wide, (256, 7168, 2048)),
        "ffn_gate_shexp": (Q4_K, (2048, 7168)),
        "ffn_up_shexp": (Q4_K, (2048, 7168)),
        "ffn_down_shexp": (wide, (7168, 2048)),
    }


_COMMON = {"context_length": 32768, "attention.layer_norm_rms_epsilon": 1e-6}
_MODELS: dict[str, tuple[Any, int, int, dict[str, Any]]] = {
    "qwen3moe": (qwen3moe, 2048, 151936, {
        "attention.head_count": 32, "attention.head_count_kv": 4, "attention.key_length": 128,
        "attention.value_length": 128, "feed_forward_length": 6144, "rope.freq_base": 1e6,
        "expert_count": 128, "expert_used_count": 8, "expert_feed_forward_length": 768,
    }),
    "gpt-oss": (gpt_oss, 2880, 201088, {
        "attention.head_count": 64, "attention.head_count_kv": 8, "attention.key_length": 64,
        "attention.value_length": 64, "feed_forward_length": 2880, "rope.freq_base": 150000.0,
        "attention.sliding_window": 128, "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096, "expert_count": 128, "expert_used_count": 4,
        "expert_feed_forward_length": 2880,
    }),
    "deepseek2": (deepseek2, 7168, 129280, {
        "attention.head_count": 128, "attention.head_count_kv": 1, "attention.key_length": 576,
        "attention.value_length": 512, "attention.key_length_mla": 192,
        "attention.value_length_mla": 128, "attention.q_lora_rank": 1536,
        "attention.kv_lora_rank": 512, "feed_forward_length": 18432, "rope.freq_base": 10000.0,
        "rope.dimension_count": 64, "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0,
        "rope.scaling.original_context_length": 4096, "rope.scaling.yarn_log_multiplier": 0.1,
        "leading_dense_block_count": 3, "expert_count": 256, "expert_used_count": 8,
        "expert_feed_forward_length": 2048, "expert_shared_count": 1, "expert_gating_func": 2,
        "expert_group_count": 8, "expert_group_used_count": 4, "expert_weights_scale": 2.5,
        "expert_weights_norm": True,
    }),
}  # fmt: skip

CASES = (("qwen3moe", 0), ("qwen3moe", 64), ("gpt-oss", 0), ("deepseek2", 0))  # model, slots


def count(name: str, layers: int, *disabled: Any, slots: int = 0) -> Counter[str]:
    """Returns the launches of one token by kernel, at the last position of a context of 8,192.

    With `slots`, each layer has slots for so many experts, and reads the others in place.
    """
    file = _file(name, layers)
    config = read_config(file).for_context(_CONTEXT)
    settings = EngineSettings(_CONTEXT, 512, "int8", "portable", 1, 1, disabled=disabled)
    weights, few = load_weights(file, config), _slots(config, slots) if slots else None
    own = PartModel(config, weights, settings, range(config.num_layers))
    part = GpuPart(CountingDevice(), own, slots=few)
    return Counter(
        each.kernel.file if isinstance(each, Launch) else type(each).__name__
        for each in part.calls_of_token(_CONTEXT - 1)
    )


def _slots(config: ModelConfig, slots: int) -> GpuSlots:
    """Returns the use of slots in all layers, which are those of a model without dense ones."""
    layers, experts, used = config.num_layers, config.num_experts, config.num_experts_per_token
    rules = PolicyRules(PolicyKind.SLRU, layers, experts, used)
    first = {layer: FirstSlots(slots) for layer in range(layers)}
    settings = SlotSettings(rules, first, num_staging=used, num_early=0, num_streamed=used)
    policy = PolicySettings(PolicyKind.SLRU, experts, used, (slots,) * layers)
    return GpuSlots(settings, policy, ("bus",), dict.fromkeys(first, 0))


def _file(name: str, layers: int) -> GgufFile:
    """Returns an open file with a model's shapes; its weights are zeros that take no memory."""
    shapes_of, hidden, vocabulary, keys = _MODELS[name]
    shapes: Shapes = {
        "token_embd.weight": (Q4_K, (vocabulary, hidden)) if hidden % 256 == 0
        else (Q8_0, (vocabulary, hidden)),
        "output_norm.weight": (F32, (hidden,)),
        "output.weight": (Q8_0, (vocabulary, hidden)),
    }  # fmt: skip
    for layer in range(layers):
        own = shapes_of(layer).items()
        shapes |= {
            f"blk.{layer}.{part}{'' if '.' in part else '.weight'}": each for part, each in own
        }
    sizes = {"block_count": layers, "embedding_length": hidden}
    values = {f"{name}.{key}": value for key, value in (_COMMON | keys | sizes).items()}
    path = Path(f"{name}.gguf")
    metadata = Metadata(path, {"general.architecture": name} | values)
    empty = GgufFile(path, 3, metadata, {}, (path,), 0, frozenset({0}))
    return empty.with_missing_parts({0: [_info(*each) for each in shapes.items()]})


def _info(name: str, of: tuple[QuantType, tuple[int, ...]]) -> TensorInfo:
    quant_type, shape = of
    num_bytes = row_bytes(quant_type, shape[-1])
    for size in shape[:-1]:
        num_bytes *= size
    return TensorInfo(name, quant_type, shape, 0, num_bytes)


def main() -> None:
    """Parses the command line, and prints the launches of each model by kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    findings = Findings()
    for name, slots in CASES:
        found = count(name, options.layers, slots=slots)
        before = count(name, options.layers, "folding", slots=slots).total()
        kernels = ", ".join(f"{kernel} {times}" for kernel, times in found.most_common())
        case = f"{name}, {slots} slots" if slots else name
        print(f"{case}: {found.total()} launches ({before} without folding): {kernels}")
        findings.figures[case] = found.total()
    sys.exit(findings.finish(options.json))


if __name__ == "__main__":
    main()
