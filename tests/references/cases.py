"""The cases: one tiny Hugging Face configuration for each thing a loader can get wrong.

Widths are the smallest that keep every part distinct: head_dim differs from hidden / heads where
the architecture allows it, KV heads are fewer than heads, and sequences outrun sliding windows.
"""

from dataclasses import dataclass, field
from typing import Any

from tokenizer import VOCAB_SIZE

NUM_TOKENS = 32

LLAMA_3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 512,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
GEMMA_ROPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 100000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
}
GEMMA_LINEAR_ROPE = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
GRANITE_SCALES = {
    "attention_multiplier": 0.125,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.6,
    "logits_scaling": 2.5,
}

HALF_ROTATED = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 4096,
    "short_factor": [1.0, 1.1, 1.2, 1.4, 1.7, 2.1, 2.6, 3.2],
    "long_factor": [1.0, 1.5, 2.2, 3.4, 5.0, 8.0, 12.0, 16.0],
    "short_mscale": 1.243163121016122,
    "long_mscale": 1.243163121016122,
}
SIGMOID_ROUTER = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "scoring_func": "sigmoid",
}

LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 40,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 16,
    "v_head_dim": 20,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
LATENT_YARN = YARN_ROPE | {
    "rope_theta": 10000.0,
    "mscale": 0.8,
    "mscale_all_dim": 0.8,
}
MISTRAL_YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 16.0,
    "original_max_position_embeddings": 12,
    "max_position_embeddings": 192,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
MIMO_ROPE = {
    "full_attention": {
        "rope_type": "default",
        "rope_theta": 5000000.0,
        "partial_rotary_factor": 0.334,
    },
    "sliding_attention": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.334,
    },
}
LAGUNA = {
    "num_hidden_layers": 3,
    "head_dim": 24,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    "mlp_layer_types": ["dense", "dense", "sparse"],
    "sliding_window": 8,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "moe_routed_scaling_factor": 1.5,
    "rope_parameters": {
        "full_attention": YARN_ROPE | {"partial_rotary_factor": 0.5},
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 1.0,
        },
    },
}
PLAIN_SHARED_EXPERT = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 64,
    "n_shared_experts": 2,
    "qkv_bias": False,
}
INDEXER = {"index_topk": 64, "index_head_dim": 64, "index_n_heads": 2}
CHOOSY_INDEXER = {"index_topk": 24, "index_head_dim": 32, "index_n_heads": 8}
MINIMAX_M3 = {
    "head_dim": 32,
    "rotary_dim": 16,
    "rope_parameters": HALF_ROTATED,
    "layer_types": ["full_attention", "minimax_m3_sparse"],
    "mlp_layer_types": ["dense", "sparse"],
    "intermediate_size": 32,
    "dense_intermediate_size": 96,
    "shared_intermediate_size": 32,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "index_n_heads": 2,
    "index_head_dim": 32,
    "index_block_size": 8,
    "index_topk_blocks": 4,
    "scoring_func": "sigmoid",
    "n_shared_experts": 1,
}
MISTRAL_4 = LATENT | {
    "first_k_dense_replace": 0,
    "norm_topk_prob": True,
    "rope_parameters": MISTRAL_YARN,
}

GEMMA_4 = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 8,
    "tie_word_embeddings": True,
    "rope_parameters": {
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.25,
            "rope_theta": 100000.0,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
    },
}

QWEN3_MOE = {
    "head_dim": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}

SHALLOW = {"num_hidden_layers": 1, "head_dim": 32, "tie_word_embeddings": True}


QWEN35_ROPE = {
    "rope_type": "default",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.25,
    "mrope_section": [1, 1, 0],
}
DELTA_NET = {
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "full_attention_interval": 2,
    "hidden_size": 32,
    "head_dim": 16,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
}

MAMBA2 = {
    "num_hidden_layers": 3,
    "hidden_size": 32,
    "mamba_n_heads": 4,
    "mamba_n_groups": 2,
    "mamba_d_state": 24,
    "mamba_d_head": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}

NEMOTRON_H = {
    "num_hidden_layers": None,
    "head_dim": 32,
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "ssm_state_size": 24,
    "n_groups": 2,
    "conv_kernel": 4,
    "expand": 1,
    "time_step_min": 1e-30,  # none: llama.cpp and NVIDIA's own code have no floor
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 64,
    "routed_scaling_factor": 1.5,
}


@dataclass(frozen=True)
class Case:
    """One reference: `model_class` and the `overrides` of its configuration over `SHARED`.

    `llama_cpp_agrees` is False where llama.cpp does not read what its converter writes, or computes
    something else, so that only transformers can tell. `added_keys` are written beside the
    converter's. `rename` names the function of `renames.py` that turns the saved model into one of
    an architecture that transformers does not have, but whose arithmetic is the same. Parameters
    whose names end with `zeroed` are 0. Of `num_seeds` seeds the one with the clearest routes is
    taken.
    """

    name: str
    model_class: str
    overrides: dict[str, Any] = field(default_factory=dict)
    llama_cpp_agrees: bool = True
    added_keys: dict[str, int | float] = field(default_factory=dict)
    rename: str = ""
    zeroed: str = ""
    num_seeds: int = 24

    @property
    def settings(self) -> dict[str, Any]:
        """The keyword arguments of the configuration."""
        return SHARED | self.overrides

    @property
    def num_experts(self) -> int:
        """Routed experts of a layer, 0 in a dense model."""
        return self._first(
            "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"
        )

    @property
    def num_used(self) -> int:
        """Routed experts that a token uses, 0 in a dense model."""
        return self._first("num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts")

    def _first(self, *names: str) -> int:
        value = next((self.settings[name] for name in names if name in self.settings), 0)
        return int(value[0] if isinstance(value, list) else value)


SHARED: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}

STEP = {
    "num_hidden_layers": 3,
    "head_dim": 24,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "num_sliding_attention_heads": 2,
    "sliding_window": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "share_expert_dim": 64,
    "moe_router_scaling_factor": 1.5,
    "swiglu_limits": [0.0, 7.0, 0.0],
    "swiglu_limits_shared": [0.0, 16.0, 0.0],
    "rope_parameters": {
        "full_attention": LLAMA_3_ROPE | {"partial_rotary_factor": 0.5},
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": 1000.0,
            "partial_rotary_factor": 1.0,
        },
    },
}
STEP_EYES = {"width": 32, "layers": 1, "heads": 2, "image_size": 28, "patch_size": 14}

CASES = (
    Case("llama", "LlamaForCausalLM", {"num_hidden_layers": 3, "rms_norm_eps": 1e-2}),
    Case(
        "llama-256",
        "LlamaForCausalLM",
        {
            "hidden_size": 256,
            "intermediate_size": 256,
            "num_key_value_heads": 1,
            "num_hidden_layers": 1,
            "tie_word_embeddings": True,
        },
    ),
    Case(
        "llama-biases",
        "LlamaForCausalLM",
        {"head_dim": 32, "attention_bias": True, "tie_word_embeddings": True},
    ),
    Case("llama-linear", "LlamaForCausalLM", SHALLOW | {"rope_parameters": LINEAR_ROPE}),
    Case("llama-llama3", "LlamaForCausalLM", SHALLOW | {"rope_parameters": LLAMA_3_ROPE}),
    Case("llama-yarn", "LlamaForCausalLM", SHALLOW | {"rope_parameters": YARN_ROPE}),
    Case(
        "mixtral",
        "MixtralForCausalLM",
        {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 32},
    ),
    Case("qwen2", "Qwen2ForCausalLM", {"tie_word_embeddings": True, "hidden_size": 96}),
    Case(
        "qwen2-yarn",
        "Qwen2ForCausalLM",
        {"num_attention_heads": 2, "num_key_value_heads": 1, "rope_parameters": YARN_ROPE},
    ),
    Case(
        "qwen2-yarn-tuned",
        "Qwen2ForCausalLM",
        {
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "num_hidden_layers": 1,
            "rope_parameters": YARN_ROPE
            | {"attention_factor": 1.4, "beta_fast": 16.0, "beta_slow": 2.0},
        },
        llama_cpp_agrees=False,
    ),
    Case(
        "qwen2moe",
        "Qwen2MoeForCausalLM",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 96,
            "norm_topk_prob": False,
        },
    ),
    Case(
        "qwen3",
        "Qwen3ForCausalLM",
        {"head_dim": 32, "tie_word_embeddings": True, "rms_norm_eps": 1e-2},
    ),
    Case("qwen3moe", "Qwen3MoeForCausalLM", QWEN3_MOE),
    Case(
        "olmoe",
        "OlmoeForCausalLM",
        {
            "num_key_value_heads": 4,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "intermediate_size": 32,
            "norm_topk_prob": False,
        },
    ),
    Case(
        "granitemoe",
        "GraniteMoeForCausalLM",
        GRANITE_SCALES
        | {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 32,
            "tie_word_embeddings": True,
        },
    ),
    Case(
        "granitemoe-shared",
        "GraniteMoeSharedForCausalLM",
        GRANITE_SCALES
        | {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 32,
            "shared_intermediate_size": 64,
        },
    ),
    Case(
        "gemma3",
        "Gemma3ForCausalLM",
        {
            "num_hidden_layers": 7,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 48,
            "query_pre_attn_scalar": 48,
            "sliding_window": 8,
            "rope_parameters": GEMMA_ROPE,
            "tie_word_embeddings": True,
        },
    ),
    Case(
        "gemma3-linear",
        "Gemma3ForCausalLM",
        {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 6,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
            "sliding_window": 8,
            "final_logit_softcapping": 4.0,
            "rope_parameters": GEMMA_LINEAR_ROPE,
            "tie_word_embeddings": True,
        },
    ),
    Case(
        "gemma3-62-layers",
        "Gemma3ForCausalLM",
        {
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 62,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "query_pre_attn_scalar": 16,
            "sliding_window": 8,
            "rope_parameters": GEMMA_ROPE,
            "tie_word_embeddings": True,
        },
    ),
    Case(
        "gpt-oss",
        "GptOssForCausalLM",
        {
            "num_hidden_layers": 3,
            "head_dim": 32,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 32,
            "sliding_window": 8,
            "rope_parameters": YARN_ROPE | {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
        },
        llama_cpp_agrees=False,
    ),
    Case(
        "glm4moe",
        "Glm4MoeForCausalLM",
        SIGMOID_ROUTER
        | {
            "num_hidden_layers": 3,
            "head_dim": 32,
            "attention_bias": True,
            "use_qk_norm": True,
            "num_nextn_predict_layers": 1,
            "rope_parameters": HALF_ROTATED,
        },
    ),
    Case(
        "glm4moe-groups",
        "Glm4MoeForCausalLM",
        SIGMOID_ROUTER
        | {
            "num_hidden_layers": 1,
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": False,
            "first_k_dense_replace": 0,
            "num_nextn_predict_layers": 0,
            "rope_parameters": HALF_ROTATED,
        },
    ),
    Case(
        "dots1",
        "Dots1ForCausalLM",
        SIGMOID_ROUTER | {"n_shared_experts": 2, "num_key_value_heads": 4, "head_dim": 16},
    ),
    Case(
        "ernie4_5-moe",
        "Ernie4_5_MoeForCausalLM",
        {
            "intermediate_size": 128,
            "moe_num_experts": 8,
            "moe_k": 2,
            "moe_intermediate_size": 32,
            "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
            "moe_layer_interval": 1,
            "use_bias": False,
        },
    ),
    Case(
        "hunyuan-moe",
        "HunYuanMoEV1ForCausalLM",
        {
            "head_dim": 32,
            "num_experts": 8,
            "moe_topk": [2, 2],
            "intermediate_size": 32,
            "moe_intermediate_size": [32, 32],
            "num_shared_expert": [1, 1],
            "tie_word_embeddings": True,
        },
    ),
    Case(
        "minimax-m2",
        "MiniMaxM2ForCausalLM",
        {
            "head_dim": 32,
            "rotary_dim": 16,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "intermediate_size": 32,
            "rope_parameters": HALF_ROTATED,
            "scoring_func": "sigmoid",
        },
    ),
    Case(
        "bailingmoe2",
        "Glm4MoeForCausalLM",
        SIGMOID_ROUTER
        | {
            "n_group": 4,
            "topk_group": 2,
            "num_nextn_predict_layers": 0,
            "use_qk_norm": True,
            "rope_parameters": HALF_ROTATED,
        },
        rename="as_bailingmoe2",
    ),
    Case(
        "afmoe",
        "AfmoeForCausalLM",
        {
            "num_hidden_layers": 4,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_dense_layers": 1,
            "head_dim": 16,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "num_shared_experts": 1,
            "sliding_window": 8,
            "global_attn_every_n_layers": 4,
            "route_scale": 1.5,
            "route_norm": True,
            "score_func": "sigmoid",
            "mup_enabled": True,
        },
    ),
    Case(
        "phimoe",
        "PhimoeForCausalLM",
        {
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "intermediate_size": 32,
            "attention_bias": True,
            "lm_head_bias": True,
            "num_hidden_layers": 1,
            "max_position_embeddings": 8192,
            "original_max_position_embeddings": 4096,
            "rope_parameters": LONG_ROPE,
        },
        llama_cpp_agrees=False,
        rename="as_phimoe",
    ),
    Case(
        "llama4",
        "Llama4ForCausalLM",
        {
            "num_hidden_layers": 4,
            "hidden_size": 32,
            "head_dim": 16,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "intermediate_size": 32,
            "intermediate_size_mlp": 64,
            "interleave_moe_layer_step": 2,
            "use_qk_norm": True,
            "attention_chunk_size": 8,
            "floor_scale": 4,
            "attn_scale": 0.3,
        },
        llama_cpp_agrees=False,
        added_keys={
            "attention.sliding_window": 8,
            "attention.temperature_length": 4,
            "attention.temperature_scale": 0.3,
        },
    ),
    Case(
        "lfm2moe",
        "Lfm2MoeForCausalLM",
        {
            "num_hidden_layers": 3,
            "layer_types": ["conv", "full_attention", "conv"],
            "num_dense_layers": 1,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "conv_L_cache": 3,
            "tie_word_embeddings": True,
        },
    ),
    Case(
        "qwen3next",
        "Qwen3NextForCausalLM",
        DELTA_NET
        | {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 64,
        },
    ),
    Case(
        "qwen35moe",
        "Qwen3_5MoeForCausalLM",
        DELTA_NET
        | {
            "rope_parameters": QWEN35_ROPE,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 64,
        },
    ),
    Case(
        "qwen35",
        "Qwen3_5ForCausalLM",
        DELTA_NET | {"tie_word_embeddings": True, "rope_parameters": QWEN35_ROPE},
    ),
    Case(
        "granitehybrid",
        "GraniteMoeHybridForCausalLM",
        GRANITE_SCALES
        | MAMBA2
        | {
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 32,
            "shared_intermediate_size": 64,
            "position_embedding_type": "nope",
        },
        rename="as_granitehybrid",
    ),
    Case(
        "granitehybrid-dense",
        "GraniteMoeHybridForCausalLM",
        GRANITE_SCALES
        | MAMBA2
        | {
            "num_hidden_layers": 2,
            "layer_types": ["full_attention", "linear_attention"],
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 96,
            "position_embedding_type": "nope",
            "tie_word_embeddings": True,
        },
        rename="as_granitehybrid",
    ),
    Case(
        "nemotron_h_moe",
        "NemotronHForCausalLM",
        NEMOTRON_H | {"layers_block_type": ["linear_attention", "moe", "full_attention", "moe"]},
    ),
    Case(
        "nemotron_h_moe-latent",
        "NemotronHForCausalLM",
        NEMOTRON_H
        | {
            "layers_block_type": ["full_attention", "linear_attention", "moe"],
            "moe_latent_size": 32,
        },
    ),
    Case(
        "deepseek2-lite",
        "DeepseekV2ForCausalLM",
        LATENT | {"q_lora_rank": None, "norm_topk_prob": False, "rope_parameters": LATENT_YARN},
        llama_cpp_agrees=False,
    ),
    Case(
        "deepseek2-groups",
        "DeepseekV2ForCausalLM",
        LATENT
        | {
            "num_hidden_layers": 1,
            "first_k_dense_replace": 0,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 4.0,
        },
        llama_cpp_agrees=False,
    ),
    Case(
        "deepseek3",
        "DeepseekV3ForCausalLM",
        LATENT
        | {
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "scoring_func": "sigmoid",
            "rope_parameters": LATENT_YARN,
        },
    ),
    Case(
        "glm4.7-flash",
        "Glm4MoeLiteForCausalLM",
        LATENT | {"n_group": 1, "topk_group": 1, "num_nextn_predict_layers": 1},
        llama_cpp_agrees=False,
    ),
    Case(
        "mimo2",
        "MiMoV2FlashForCausalLM",
        {
            "num_hidden_layers": 3,
            "head_dim": 24,
            "v_head_dim": 16,
            "num_key_value_heads": 1,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "mlp_layer_types": ["dense", "sparse", "sparse"],
            "sliding_window": 8,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "norm_topk_prob": True,
            "rope_parameters": MIMO_ROPE,
        },
        rename="as_mimo2",
    ),
    Case(
        "laguna",
        "LagunaForCausalLM",
        LAGUNA | {"num_attention_heads_per_layer": [2, 4, 4], "gating": "per-head"},
    ),
    Case("laguna-values", "LagunaForCausalLM", LAGUNA | {"gating": "per-element"}),
    Case("mistral3", "Ministral3ForCausalLM", {"rope_parameters": MISTRAL_YARN, "head_dim": 16}),
    Case(
        "mistral4", "Mistral4ForCausalLM", MISTRAL_4, rename="as_mistral4", llama_cpp_agrees=False
    ),
    Case(
        "mistral-large3",
        "Mistral4ForCausalLM",
        MISTRAL_4,
        rename="as_mistral_large3",
        added_keys={"attention.temperature_length": 12, "attention.temperature_scale": 0.1},
    ),
    Case(
        "gemma4-moe",
        "Gemma4ForCausalLM",
        GEMMA_4
        | {
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "num_experts": 8,
            "top_k_experts": 2,
            "moe_intermediate_size": 32,
            "final_logit_softcapping": 6.0,
        },
    ),
    Case(
        "gemma4-e2b",
        "Gemma4ForCausalLM",
        GEMMA_4
        | {
            "num_hidden_layers": 6,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "num_key_value_heads": 1,
            "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": VOCAB_SIZE,
            "use_double_wide_mlp": True,
            "final_logit_softcapping": 30.0,
        },
    ),
    Case(
        "lfm2",
        "Lfm2ForCausalLM",
        {
            "hidden_size": 32,
            "layer_types": ["conv", "full_attention"],
            "block_auto_adjust_ff_dim": False,
            "conv_L_cache": 4,
        },
    ),
    Case(
        "solar-open",
        "SolarOpenForCausalLM",
        SIGMOID_ROUTER
        | {
            "hidden_size": 32,
            "head_dim": 16,
            "first_k_dense_replace": 0,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 1.0,
            },
        },
    ),
    Case("qwen3vl", "Qwen3ForCausalLM", {"hidden_size": 32, "head_dim": 32}, rename="as_qwen3vl"),
    Case(
        "exaone-moe",
        "ExaoneMoeForCausalLM",
        {
            "num_hidden_layers": 4,
            "hidden_size": 32,
            "head_dim": 16,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "num_shared_experts": 1,
            "sliding_window": 8,
            "sliding_window_pattern": 4,
            "routed_scaling_factor": 1.5,
        },
    ),
    Case(
        "hy_v3",
        "HYV3ForCausalLM",
        {
            "hidden_size": 32,
            "head_dim": 16,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "num_shared_experts": 2,
            "router_scaling_factor": 1.5,
        },
    ),
    Case(
        "mellum",
        "MellumForCausalLM",
        {
            "num_hidden_layers": 4,
            "hidden_size": 32,
            "head_dim": 32,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "sliding_window": 8,
            "layer_types": ["full_attention", "sliding_attention"] * 2,
            "rope_parameters": {
                "full_attention": YARN_ROPE,
                "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            },
        },
    ),
    Case("qwen3vlmoe", "Qwen3MoeForCausalLM", QWEN3_MOE, rename="as_qwen3vlmoe"),
    Case(
        "deepseek",
        "Qwen2MoeForCausalLM",
        PLAIN_SHARED_EXPERT | {"norm_topk_prob": False, "mlp_only_layers": [0]},
        rename="as_deepseek",
        zeroed="shared_expert_gate.weight",
    ),
    Case(
        "bailingmoe",
        "Qwen2MoeForCausalLM",
        PLAIN_SHARED_EXPERT | {"norm_topk_prob": True},
        rename="as_bailingmoe",
        zeroed="shared_expert_gate.weight",
    ),
    Case(
        "cohere2moe",
        "Cohere2MoeForCausalLM",
        {
            "num_hidden_layers": 3,
            "head_dim": 24,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "mlp_layer_types": ["dense", "sparse", "sparse"],
            "prefix_dense_intermediate_size": 96,
            "intermediate_size": 32,
            "sliding_window": 8,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "num_shared_experts": 2,
            "expert_selection_fn": "sigmoid",
            "rms_norm_eps": None,
            "layer_norm_eps": 1e-5,
            "logit_scale": 0.25,
            "tie_word_embeddings": True,
        },
    ),
    Case(
        "granite_swa",
        "GraniteMoeSWAForCausalLM",
        GRANITE_SCALES
        | {
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "layer_rope_theta": [0.0, 10000.0, 10000.0],
            "sliding_window": 8,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 32,
            "shared_intermediate_size": 64,
        },
        rename="as_granite_swa",
    ),
    Case(
        "minimax-m3",
        "MiniMaxM3VLForCausalLM",
        MINIMAX_M3,
        rename="as_minimax_m3",
        num_seeds=300,
    ),
    Case(
        "kimi-linear",
        "KimiLinearForCausalLM",
        SIGMOID_ROUTER
        | {
            "layer_types": ["linear_attention", "full_attention"],
            "mlp_layer_types": ["dense", "sparse"],
            "num_key_value_heads": 4,
            "kv_lora_rank": 40,
            "qk_nope_head_dim": 24,
            "qk_rope_head_dim": 16,
            "v_head_dim": 20,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "linear_head_dim": 16,
            "linear_num_heads": 4,
        },
        rename="as_kimi_linear",
        num_seeds=100,
    ),
    Case(
        "bailingmoe3",
        "BailingHybridForCausalLM",
        LATENT
        | {
            "layer_group_size": 2,
            "head_dim": 16,
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "num_local_experts": 8,
            "first_k_dense_replace": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        rename="as_bailingmoe3",
        num_seeds=100,
    ),
    Case(
        "dbrx",
        "DbrxForCausalLM",
        {
            "d_model": 64,
            "n_heads": 4,
            "n_layers": 2,
            "max_seq_len": 2048,
            "attn_config": {"kv_n_heads": 2, "clip_qkv": 1.0, "rope_theta": 10000.0},
            "ffn_config": {
                "hidden_size": 64,
                "ffn_hidden_size": 32,
                "moe_num_experts": 8,
                "moe_top_k": 2,
            },
            "num_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
    Case(
        "step35",
        "Step3p7ForConditionalGeneration",
        {
            "text_config": SHARED | STEP | {"pad_token_id": 2},
            "vision_config": STEP_EYES,
            "num_experts": 8,
            "num_experts_per_tok": 2,
        },
        rename="as_step35",
    ),
    Case(
        "minimax-m3-chosen",
        "MiniMaxM3VLForCausalLM",
        MINIMAX_M3
        | {
            "layer_types": ["minimax_m3_sparse", "minimax_m3_sparse"],
            "index_block_size": 4,
            "index_topk_blocks": 3,
        },
        rename="as_minimax_m3",
        num_seeds=300,
    ),
    Case(
        "glm-dsa-chosen",
        "GlmMoeDsaForCausalLM",
        LATENT
        | CHOOSY_INDEXER
        | {
            "num_hidden_layers": 3,
            "norm_topk_prob": True,
            "scoring_func": "sigmoid",
            "indexer_types": ["full", "shared", "full"],
        },
        num_seeds=300,
    ),
    Case(
        "deepseek32-chosen",
        "DeepseekV32ForCausalLM",
        LATENT
        | CHOOSY_INDEXER
        | {
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "scoring_func": "sigmoid",
            "rope_parameters": LATENT_YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
        },
        num_seeds=300,
    ),
    Case(
        "glm-dsa",
        "GlmMoeDsaForCausalLM",
        LATENT
        | INDEXER
        | {
            "norm_topk_prob": True,
            "scoring_func": "sigmoid",
            "indexer_types": ["full", "shared"],
        },
    ),
    Case(
        "deepseek32",
        "DeepseekV32ForCausalLM",
        LATENT
        | INDEXER
        | {
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "scoring_func": "sigmoid",
            "rope_parameters": LATENT_YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
)
