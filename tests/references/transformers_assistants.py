"""Gemma 4 assistants: small drafters in files of their own, and their drafts in transformers.

Needs the environment of `make references`, so no test runs it:

    .references-venv/bin/python tests/references/transformers_assistants.py \
        --llama-cpp .references-venv/llama.cpp

For each model of `CASES`, `heads/<case>-assistant.gguf` is what llama.cpp's converter writes. Its
`heads/<case>-assistant.npz` has the logits of two drafts (tokens - 1, 2, vocabulary) after each of
the model's tokens but the first. The second draft follows the likeliest first one.

transformers 5.23.0 does not build such an assistant, since all of its layers read the keys of
others, and a model whose layers share none does not hand its own on. `sharing_modes` mends both.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases import CASES, Case
from converter import convert, load_converter
from numpy.typing import NDArray
from tiny_models import _fill, make_reference
from tokenizer import VOCAB_SIZE, save_tokenizer
from transformers import (
    Gemma4AssistantConfig,
    Gemma4AssistantForCausalLM,
    Gemma4TextConfig,
)

HEADS = Path(__file__).parent / "heads"
NAMES = ("gemma4-moe", "gemma4-e2b")
WIDTH = 64
SHARED = (
    *("head_dim", "global_head_dim", "num_key_value_heads", "sliding_window"),
    *("num_global_key_value_heads", "attention_k_eq_v", "rope_parameters", "tie_word_embeddings"),
)


def main() -> None:
    """Writes the files of all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama-cpp", type=Path, required=True, help="llama.cpp source folder")
    Gemma4TextConfig.kv_sharing_modes = property(sharing_modes)
    converter = load_converter(parser.parse_args().llama_cpp)
    for case in CASES:
        if case.name in NAMES:
            reference = make_reference(case)
            assistant = make_assistant(case, reference.model)
            logits = draft_logits(reference.model, assistant, reference.tokens)
            save(assistant, converter, HEADS / f"{case.name}-assistant.gguf")
            np.savez_compressed(HEADS / f"{case.name}-assistant.npz", logits=logits)
            right = (logits[:-1, 0].argmax(-1) == reference.logits[1:-1].argmax(-1)).mean()
            print(f"{case.name}: std {logits.std():.2f}, {right:.0%} as the model")


def sharing_modes(config: Gemma4TextConfig) -> list[str | None]:
    """Returns for each layer if it stores keys for others, reads those of others, or neither."""
    first = config.num_hidden_layers - config.num_kv_shared_layers
    own = config.layer_types[:first]
    modes: list[str | None] = [None] * first + ["reuse"] * config.num_kv_shared_layers
    for kind in set(own):
        modes[max(i for i, each in enumerate(own) if each == kind)] = "store"
    return modes


def make_assistant(case: Case, model: Any) -> Any:
    """Returns a random assistant for a model; its output is mostly its input embedding.

    The next token of a small random model mostly follows from the last one. So the assistant's
    drafts are often right.
    """
    settings, hidden = case.settings, model.config.hidden_size
    text = Gemma4TextConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=WIDTH,
        intermediate_size=96,
        num_hidden_layers=3,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        num_attention_heads=model.config.num_attention_heads,
        num_kv_shared_layers=3,
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=0,
        enable_moe_block=False,
        final_logit_softcapping=None,
        **{key: settings[key] for key in SHARED if key in settings},
    )
    config = Gemma4AssistantConfig(
        text_config=text, backbone_hidden_size=hidden, tie_word_embeddings=True
    )
    config.architectures = ["Gemma4AssistantForCausalLM"]
    config._attn_implementation = text._attn_implementation = "eager"
    assistant = Gemma4AssistantForCausalLM(config).to(torch.float32).eval()
    _fill(assistant, torch.Generator().manual_seed(5))
    with torch.no_grad():
        assistant.model.embed_tokens.weight[:, :hidden] = model.get_input_embeddings().weight
        passing = assistant.pre_projection.weight
        passing[:hidden, :hidden] += torch.eye(hidden)
        passing.copy_(passing.half().float())
    return assistant


def draft_logits(model: Any, assistant: Any, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
    """Returns the logits (tokens - 1, 2, vocabulary) of two drafts after each prefix."""
    ids = torch.from_numpy(tokens.astype(np.int64))[None]
    embed = model.get_input_embeddings()
    found = []
    with torch.no_grad():
        out = model.get_decoder()(ids, use_cache=False, return_shared_kv_states=True)
        for length in range(1, ids.shape[1]):
            known = {
                kind: tuple(each[:, :, :length] for each in both)
                for kind, both in out.shared_kv_states.items()
            }
            token, hidden = (
                ids[:, length : length + 1],
                out.last_hidden_state[:, length - 1 : length],
            )
            rows = []
            for _ in range(2):
                drafted = assistant(
                    inputs_embeds=torch.cat([embed(token), hidden], dim=-1),
                    position_ids=torch.tensor([[length]]),
                    shared_kv_states=known,
                    use_cache=False,
                )
                token, hidden = drafted.logits.argmax(-1), drafted.last_hidden_state
                rows.append(drafted.logits[0, 0].numpy())
            found.append(rows)
    return np.array(found, np.float32)


def save(assistant: Any, converter: Any, path: Path) -> None:
    """Writes an assistant as llama.cpp's converter does."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assistant.save_pretrained(folder)
        save_tokenizer(folder)
        converter.ModelBase.no_mtp = False
        convert(converter, folder, path)


if __name__ == "__main__":
    main()
