"""Writes a trained checkpoint as GGUF, with the names and layout of llama.cpp's converter.

usage: convert.py CHECKPOINT_DIR OUT.gguf [--float32]

Quant types: Q4_K for the experts' gate and up matrices, Q6_K for their down matrices and the
output, Q8_0 for attention and embeddings; norms and routers stay float32.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as QuantType
from gguf import GGUFWriter, LlamaFileType, TokenType, quants
from k_quants import Floats, quantise_q4_k, quantise_q6_k
from safetensors.numpy import load_file

ARCHITECTURE = "qwen3moe"
NAME = "Stories MoE 21M"
DESCRIPTION = "Writes short stories for small children. A base model: it continues text."
LICENCE = "cdla-sharing-1.0"
DATASET = "https://huggingface.co/datasets/roneneldan/TinyStories"

MODEL_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp",
}
EXPERT_NAMES = {
    "gate_proj": "ffn_gate_exps",
    "up_proj": "ffn_up_exps",
    "down_proj": "ffn_down_exps",
}


def renamed(checkpoint: dict[str, Floats], config: dict[str, Any]) -> dict[str, Floats]:
    """Returns a checkpoint's tensors by GGUF name, experts stacked as (experts, rows, columns)."""
    tensors = {gguf: checkpoint[f"{hf}.weight"] for hf, gguf in MODEL_NAMES.items()}
    for layer in range(config["num_hidden_layers"]):
        source, target = f"model.layers.{layer}", f"blk.{layer}"
        for hf, gguf in LAYER_NAMES.items():
            tensors[f"{target}.{gguf}"] = checkpoint[f"{source}.{hf}.weight"]
        for hf, gguf in EXPERT_NAMES.items():
            experts = range(config["num_local_experts"])
            parts = [checkpoint[f"{source}.mlp.experts.{e}.{hf}.weight"] for e in experts]
            tensors[f"{target}.{gguf}"] = np.stack(parts)
    return {f"{name}.weight": values for name, values in tensors.items()}


def quant_type(name: str, values: Floats) -> QuantType:
    """Returns the quant type for a tensor, by its name and number of dimensions."""
    if values.ndim == 1 or "ffn_gate_inp" in name:
        return QuantType.F32
    if "ffn_gate_exps" in name or "ffn_up_exps" in name:
        return QuantType.Q4_K
    if "ffn_down_exps" in name or name == "output.weight":
        return QuantType.Q6_K
    return QuantType.Q8_0


def quantised(values: Floats, stored: QuantType) -> np.ndarray[Any, Any]:
    """Converts values to the type `stored`: floats, or the bytes of quantised rows."""
    if stored == QuantType.Q4_K:
        return quantise_q4_k(values)
    if stored == QuantType.Q6_K:
        return quantise_q6_k(values)
    return quants.quantize(values, stored)


def add_metadata(writer: GGUFWriter, config: dict[str, Any], file_type: LlamaFileType) -> None:
    """Adds the model's name, licence, data set and hyper-parameters."""
    writer.add_type("model")
    writer.add_name(NAME)
    writer.add_description(DESCRIPTION)
    writer.add_license(LICENCE)
    writer.add_languages(["en"])
    writer.add_tags(["text-generation", "moe", "stories"])
    writer.add_dataset_count(1)
    writer.add_dataset_name(0, "TinyStories")
    writer.add_dataset_repo_url(0, DATASET)
    writer.add_file_type(file_type)
    writer.add_quantization_version(2)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_vocab_size(config["vocab_size"])
    add_attention(writer, config)
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def add_attention(writer: GGUFWriter, config: dict[str, Any]) -> None:
    """Adds the metadata of attention heads, rotary base and RMS norm."""
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])


def add_tokenizer(writer: GGUFWriter, tokenizer: dict[str, Any], end_id: int) -> None:
    """Adds vocabulary and merges, but no chat template: the model only continues text."""
    vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    special = {token["id"] for token in tokenizer["added_tokens"]}
    kinds = [TokenType.CONTROL if i in special else TokenType.NORMAL for i in range(len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(end_id)
    writer.add_eos_token_id(end_id)
    writer.add_add_bos_token(True)


def convert(checkpoint: Path, out: Path, *, float32: bool) -> None:
    """Writes the checkpoint at `checkpoint` to the GGUF file `out`."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text(encoding="utf-8"))
    writer = GGUFWriter(out, ARCHITECTURE)
    file_type = LlamaFileType.ALL_F32 if float32 else LlamaFileType.MOSTLY_Q4_K_M
    add_metadata(writer, config, file_type)
    add_tokenizer(writer, tokenizer, config["eos_token_id"])
    for name, values in renamed(load_file(checkpoint / "model.safetensors"), config).items():
        stored = QuantType.F32 if float32 else quant_type(name, values)
        writer.add_tensor(name, quantised(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Parses the command line and writes the GGUF file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--float32", action="store_true", help="keep every tensor float32")
    given = parser.parse_args()
    convert(given.checkpoint, given.out, float32=given.float32)


if __name__ == "__main__":
    main()
