"""The cases of dense models: each holds what sets its architecture apart from Llama's."""

from cases import GRANITE_SCALES, NEMOTRON_H, SHARED, YARN_ROPE, Case

NARROW = {"hidden_size": 32, "head_dim": 16}
HALF_ROTATED = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
WINDOWS = {
    "num_hidden_layers": 4,
    "sliding_window": 8,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
}
LAYER_NORM = {
    "hidden_size": 32,
    "rms_norm_eps": None,
    "layer_norm_eps": 1e-5,
    "layer_norm_epsilon": 1e-5,
}
TIED = {"logit_scale": 0.25, "tie_word_embeddings": True}

DENSE_CASES = (
    Case("gemma", "GemmaForCausalLM", {**NARROW, "tie_word_embeddings": True}),
    Case(
        "gemma2",
        "Gemma2ForCausalLM",
        {
            **NARROW,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "query_pre_attn_scalar": 16,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 6.0,
            "tie_word_embeddings": True,
        },
    ),
    Case("granite", "GraniteForCausalLM", GRANITE_SCALES | {"hidden_size": 32}),
    Case("seed_oss", "SeedOssForCausalLM", {**NARROW, "attention_bias": True}),
    Case("smollm3", "SmolLM3ForCausalLM", {"hidden_size": 32, "num_hidden_layers": 4}),
    Case("olmo2", "Olmo2ForCausalLM", {"hidden_size": 32}),
    Case("olmo3", "Olmo3ForCausalLM", WINDOWS | {"hidden_size": 32, "rope_parameters": YARN_ROPE}),
    Case("command-r", "CohereForCausalLM", LAYER_NORM | TIED),
    Case("cohere2", "Cohere2ForCausalLM", LAYER_NORM | WINDOWS | TIED, rename="as_cohere2"),
    Case("glm4", "Glm4ForCausalLM", {**NARROW, "rope_parameters": HALF_ROTATED}),
    Case(
        "chatglm",
        "GlmForCausalLM",
        {"hidden_size": 32, "head_dim": 8, "rope_parameters": HALF_ROTATED},
        rename="as_chatglm",
    ),
    Case("exaone4", "Exaone4ForCausalLM", WINDOWS | NARROW),
    Case("hunyuan-dense", "HunYuanDenseV1ForCausalLM", NARROW),
    Case("ernie4_5", "Ernie4_5ForCausalLM", {**NARROW, "use_bias": False}),
    Case(
        "phi2",
        "PhiForCausalLM",
        {**LAYER_NORM, "num_key_value_heads": 4, "rope_parameters": HALF_ROTATED},
    ),
    Case("phi3", "Phi3ForCausalLM", {"hidden_size": 32, "sliding_window": 8}),
    Case("starcoder2", "Starcoder2ForCausalLM", {**LAYER_NORM, "norm_epsilon": 1e-5}),
    Case("stablelm", "StableLmForCausalLM", {**LAYER_NORM, "rope_parameters": HALF_ROTATED}),
    Case("apertus", "ApertusForCausalLM", {"hidden_size": 32, "hidden_act": "xielu"}),
    Case("arcee", "ArceeForCausalLM", NARROW),
    Case("jais2", "Jais2ForCausalLM", LAYER_NORM),
    Case("internlm2", "LlamaForCausalLM", {"hidden_size": 32}, rename="as_internlm2"),
    Case(
        "minicpm",
        "GraniteForCausalLM",
        NARROW | GRANITE_SCALES | {"attention_multiplier": 0.25},
        rename="as_minicpm",
    ),
    Case(
        "falcon-h1",
        "FalconH1ForCausalLM",
        {
            "hidden_size": 32,
            "head_dim": 16,
            "mamba_d_ssm": 64,
            "mamba_n_heads": 4,
            "mamba_d_state": 24,
            "mamba_n_groups": 2,
            "attention_in_multiplier": 0.5,
            "attention_out_multiplier": 2.0,
            "key_multiplier": 0.5,
            "ssm_in_multiplier": 2.0,
            "ssm_out_multiplier": 0.25,
            "ssm_multipliers": [0.5, 1.0, 2.0, 0.5, 0.25],
            "mlp_multipliers": [2.0, 0.5],
            "lm_head_multiplier": 0.5,
        },
    ),
    Case(
        "nemotron_h",
        "NemotronHForCausalLM",
        NEMOTRON_H | {"layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp"]},
        rename="as_nemotron_h",
    ),
    Case(
        "muse-glimmer",
        "MuseGlimmerForConditionalGeneration",
        {
            "text_config": SHARED
            | WINDOWS
            | NARROW
            | {"final_logit_softcapping": 6.0, "qk_scale_factor": 1.5, "output_multiplier": 0.5},
            "vision_config": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1},
        },
    ),
)
