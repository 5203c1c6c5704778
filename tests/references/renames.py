"""Saved models in the names of architectures that transformers does not have.

Each function rewrites a folder in which another architecture of the same arithmetic was saved.
"""

import json
import re
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def as_bailingmoe2(folder: Path) -> None:
    """A GLM-4.5 MoE as Ling 2.0: queries, keys and values in one matrix, other names."""
    tensors = load_file(folder / "model.safetensors")
    _fuse_projections(tensors)
    renamed = {_bailing_name(name): tensor for name, tensor in tensors.items()}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    _change_config(
        folder,
        ["BailingMoeV2ForCausalLM"],
        num_experts="n_routed_experts",
        num_shared_experts="n_shared_experts",
    )


def as_deepseek(folder: Path) -> None:
    """A Qwen2 MoE as the first DeepSeek MoE: shared experts without the gate, which is one half."""
    tensors = _without_shared_gate(load_file(folder / "model.safetensors"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _change_config(folder, ["DeepseekForCausalLM"], n_routed_experts="num_experts")
    _set_config(folder, first_k_dense_replace=1)


def as_bailingmoe(folder: Path) -> None:
    """A Qwen2 MoE as Ling 1.5: the same, queries, keys and values in one matrix, other names."""
    tensors = _without_shared_gate(load_file(folder / "model.safetensors"))
    _fuse_projections(tensors)
    renamed = {_bailing_name(name): tensor for name, tensor in tensors.items()}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    _change_config(folder, ["BailingMoeForCausalLM"], num_shared_experts="n_shared_experts")
    _set_config(folder, first_k_dense_replace=0)


def as_chatglm(folder: Path) -> None:
    """GLM-4-9B as it was released: the length of its context is stated under a name of its own."""
    _set_config(folder, seq_length=2048)


def as_cohere2(folder: Path) -> None:
    """Cohere 2 as it was released: the share of each head that rotates is stated."""
    _set_config(folder, rotary_pct=1.0)


def as_nemotron_h(folder: Path) -> None:
    """Nemotron-H as it was released: a pattern of layers, and no word of experts."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    kept = {key: value for key, value in config.items() if "expert" not in key}
    kinds = {"linear_attention": "M", "full_attention": "*", "mlp": "-"}
    kept["hybrid_override_pattern"] = "".join(kinds[kind] for kind in config["layers_block_type"])
    kept["model_type"] = "unknown"  # else the converter fills in what transformers has by default
    path.write_text(json.dumps(kept))


def as_kimi_linear(folder: Path) -> None:
    """Kimi Linear as it was released: kinds of layers and sizes of KDA in a table of their own."""
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    dense = re.compile(r"block_sparse_moe\.(?=(gate|up|down)_proj)")
    renamed = {dense.sub("mlp.", name): tensor for name, tensor in tensors.items()}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    kinds = list(enumerate(config["layer_types"], start=1))
    _set_config(
        folder,
        linear_attn_config={
            "full_attn_layers": [layer for layer, kind in kinds if kind == "full_attention"],
            "kda_layers": [layer for layer, kind in kinds if kind == "linear_attention"],
            "head_dim": config["linear_head_dim"],
            "num_heads": config["linear_num_heads"],
            "short_conv_kernel_size": config["linear_conv_kernel_dim"],
        },
        first_k_dense_replace=config["mlp_layer_types"].count("dense"),
        num_shared_experts=1,
        model_type="unknown",
    )


def as_bailingmoe3(folder: Path) -> None:
    """Ling 3 as it was released, under the names of its own configuration."""
    _change_config(folder, ["BailingMoeV3ForCausalLM"])
    _set_config(
        folder,
        model_type="unknown",
        no_kda_lora=True,
        gated_attention_proj_granularity_type="head_wise",
        num_shared_experts=1,
        moe_shared_expert_intermediate_size=32,
        norm_topk_prob=True,
        n_group=4,
        num_experts_per_tok=2,
        scoring_func="sigmoid",
        rope_theta=10000.0,
    )


def as_internlm2(folder: Path) -> None:
    """A Llama as InternLM2: queries, keys and values of each KV head in one matrix, other names."""
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    groups = config["num_key_value_heads"]
    for layer in range(config["num_hidden_layers"]):
        parts = [
            tensors.pop(f"model.layers.{layer}.self_attn.{each}_proj.weight").reshape(
                groups, -1, config["hidden_size"]
            )
            for each in "qkv"
        ]
        fused = torch.cat(parts, dim=1).reshape(-1, config["hidden_size"])
        tensors[f"model.layers.{layer}.attention.wqkv.weight"] = fused
    renamed = {_internlm_name(name): tensor for name, tensor in tensors.items()}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    _change_config(folder, ["InternLM2ForCausalLM"])


def as_minicpm(folder: Path) -> None:
    """A Granite as MiniCPM, whose scales have other names; its attention is scaled as usual."""
    _change_config(folder, ["MiniCPMForCausalLM"], scale_emb="embedding_multiplier")
    config = json.loads((folder / "config.json").read_text())
    _set_config(
        folder,
        scale_depth=config["residual_multiplier"] * config["num_hidden_layers"] ** 0.5,
        dim_model_base=config["hidden_size"] / config["logits_scaling"],
    )


def as_phimoe(folder: Path) -> None:
    """Phi-3.5 MoE as it was released: a capital E, RoPE's factors in a place of their own."""
    _change_config(folder, ["PhiMoEForCausalLM"], rope_scaling="rope_parameters")


def as_mimo2(folder: Path) -> None:
    """MiMo V2 Flash as it was released: windows by a pattern, their sizes under other names."""
    _change_config(
        folder,
        ["MiMoV2FlashForCausalLM"],
        swa_head_dim="head_dim",
        swa_v_head_dim="v_head_dim",
        swa_num_attention_heads="num_attention_heads",
    )
    path = folder / "config.json"
    config = json.loads(path.read_text())
    ropes = config.pop("rope_parameters")
    config |= {
        "hybrid_layer_pattern": [int(each != "full_attention") for each in config["layer_types"]],
        "swa_num_key_value_heads": 2 * config["num_key_value_heads"],
        "topk_method": "noaux_tc",
        "layernorm_epsilon": config["rms_norm_eps"],
        "scoring_func": "sigmoid",
        "rope_parameters": ropes["full_attention"],
        "swa_rope_theta": ropes["sliding_attention"]["rope_theta"],
    }
    path.write_text(json.dumps(config))


def as_minimax_m3(folder: Path) -> None:
    """The text half of MiniMax M3 as it was released: experts and halves of gate_up lie apart."""
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        tensors |= _minimax_m3_parts(name, tensor)
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = json.loads((folder / "config.json").read_text())
    _set_config(
        folder,
        architectures=["MiniMaxM3SparseForCausalLM"],
        model_type="minimax_m3",  # unknown to transformers, which would drop the older keys
        moe_layer_freq=[int(kind == "sparse") for kind in config["mlp_layer_types"]],
        sparse_attention_config={
            "sparse_num_index_heads": config["index_n_heads"],
            "sparse_index_dim": config["index_head_dim"],
            "sparse_topk_blocks": config["index_topk_blocks"],
            "sparse_block_size": config["index_block_size"],
            "sparse_local_block": config["index_local_blocks"],
        },
    )


def _minimax_m3_parts(name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns a tensor, or its parts, under the released names."""
    name = name.replace("self_attn.indexer.", "self_attn.index_")
    name = re.sub(r"mlp\.(experts|gate|shared_experts)\.", r"block_sparse_moe.\1.", name)
    name = name.replace("gate.e_score_correction_bias", "e_score_correction_bias")
    if name.endswith("experts.gate_up_proj"):
        halves = dict(zip(("w1", "w3"), tensor.chunk(2, dim=1), strict=True))
    elif name.endswith("experts.down_proj"):
        halves = {"w2": tensor}
    elif name.endswith("gate_up_proj.weight"):
        gate, up = tensor.chunk(2)
        return {name.replace("gate_up", "gate"): gate, name.replace("gate_up", "up"): up}
    else:
        return {name: tensor}
    prefix = name.rsplit(".", 1)[0]
    return {
        f"{prefix}.{index}.{part}.weight": matrix
        for part, stacked in halves.items()
        for index, matrix in enumerate(stacked)
    }


def as_step35(folder: Path) -> None:
    """The text half of Step 3.7 as Step 3.5 was released: lists for layers under older names."""
    tensors = load_file(folder / "model.safetensors")
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if name.startswith(("model.layers", "model.embed_tokens", "model.norm", "lm_head"))
    }
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())["text_config"]
    kinds, ropes = config["layer_types"], config.pop("rope_parameters")
    scaled = ropes["full_attention"]
    path.write_text(
        json.dumps(
            config
            | {
                "architectures": ["Step3p5ForCausalLM"],
                "model_type": "step3p5_flash",  # unknown to transformers, which drops the lists
                "num_attention_groups": config["num_key_value_heads"],
                "attention_other_setting": {
                    "num_attention_heads": config["num_sliding_attention_heads"],
                    "num_attention_groups": config["num_key_value_heads"],
                },
                "moe_num_experts": config["n_routed_experts"],
                "moe_top_k": config["num_experts_per_tok"],
                "norm_expert_weight": True,
                "moe_layers_enum": "1,2",
                "partial_rotary_factors": [ropes[kind]["partial_rotary_factor"] for kind in kinds],
                "rope_theta": [scaled["rope_theta"], ropes["sliding_attention"]["rope_theta"]],
                "rope_scaling": {
                    name: value
                    for name, value in scaled.items()
                    if name not in ("rope_theta", "partial_rotary_factor")
                },
            }
        )
    )


def as_mistral4(folder: Path) -> None:
    """Mistral Small 4 as it was released: a language model and a vision tower."""
    _change_config(folder, ["Mistral3ForConditionalGeneration"])


def as_mistral_large3(folder: Path) -> None:
    """A Mistral 4 as a DeepSeek V2, as which Mistral Large 3 is converted: experts lie apart."""
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if ".experts." in name]:
        stacked, prefix = tensors.pop(name), name.rsplit(".", 1)[0]
        halves = dict(zip(("gate_proj", "up_proj"), stacked.chunk(2, dim=1), strict=True))
        parts = {"down_proj": stacked} if name.endswith("down_proj") else halves
        for part, experts in parts.items():
            for index, matrix in enumerate(experts):
                tensors[f"{prefix}.{index}.{part}.weight"] = matrix.contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _change_config(folder, ["DeepseekV2ForCausalLM"])


def as_granitehybrid(folder: Path) -> None:
    """Granite 4 as it was released: layers are named for Mamba and attention."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    names = {"linear_attention": "mamba", "full_attention": "attention"}
    config["layer_types"] = [names[each] for each in config["layer_types"]]
    config.pop("layers_block_type", None)
    path.write_text(json.dumps(config))


def as_granite_swa(folder: Path) -> None:
    """Granite SWA as llama.cpp reads it: a flag for each layer that rotates, where 0 is no base."""
    config = json.loads((folder / "config.json").read_text())
    _set_config(folder, no_rope_layers=[int(base > 0) for base in config["layer_rope_theta"]])


def as_qwen3vl(folder: Path) -> None:
    """Qwen3 as the text half of Qwen3-VL: its RoPE has sections, alike for text."""
    _as_text_of_qwen3vl(folder, "Qwen3VLForConditionalGeneration")


def as_qwen3vlmoe(folder: Path) -> None:
    """Qwen3 MoE as the text half of Qwen3-VL MoE."""
    _as_text_of_qwen3vl(folder, "Qwen3VLMoeForConditionalGeneration")


def _as_text_of_qwen3vl(folder: Path, architecture: str) -> None:
    _change_config(folder, [architecture])
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["rope_parameters"]["mrope_section"] = [6, 5, 5]
    config["vision_config"] = {"deepstack_visual_indexes": [1, 2, 3]}
    path.write_text(json.dumps(config))


def _fuse_projections(tensors: dict[str, torch.Tensor]) -> None:
    num_layers = 1 + max(int(m[1]) for m in map(re.compile(r".*layers\.(\d+)").match, tensors) if m)
    for layer in range(num_layers):
        prefix = f"model.layers.{layer}.self_attn"
        parts = [tensors.pop(f"{prefix}.{each}_proj.weight") for each in "qkv"]
        tensors[f"model.layers.{layer}.attention.query_key_value.weight"] = torch.cat(parts)


def _internlm_name(name: str) -> str:
    names = {
        "self_attn.o_proj": "attention.wo",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "embed_tokens": "tok_embeddings",
        "lm_head": "output",
    }
    for old, new in names.items():
        name = name.replace(old, new)
    return name


def _without_shared_gate(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Halves the results of shared experts, whose gates are sigmoid(0), and drops the gates."""
    renamed = {
        name.replace("shared_expert.", "shared_experts."): (
            0.5 * tensor if name.endswith("shared_expert.down_proj.weight") else tensor
        )
        for name, tensor in tensors.items()
    }
    gates = [name for name in renamed if name.endswith("shared_expert_gate.weight")]
    assert gates
    assert not any(renamed.pop(name).any() for name in gates)
    return renamed


def _bailing_name(name: str) -> str:
    for old, new in (
        ("self_attn.o_proj", "attention.dense"),
        ("self_attn.q_norm", "attention.query_layernorm"),
        ("self_attn.k_norm", "attention.key_layernorm"),
        ("gate.e_score_correction_bias", "gate.expert_bias"),
        ("embed_tokens", "word_embeddings"),
    ):
        name = name.replace(old, new)
    return name


def _change_config(folder: Path, architectures: list[str], **copies: str) -> None:
    """Replaces the architectures in the configuration, and copies values to other keys."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config |= {new: config[old] for new, old in copies.items()} | {"architectures": architectures}
    path.write_text(json.dumps(config))


def _set_config(folder: Path, **values: object) -> None:
    """Writes values into the configuration."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
