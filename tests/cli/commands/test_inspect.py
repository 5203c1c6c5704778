"""`sharpi inspect`: the same facts as text and as JSON, for files with few and with many."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine
from gguf import GGMLQuantizationType, GGUFWriter
from tiny_vocabulary import write_vocabulary


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small mixture of experts: 4 experts, 2 used, 1,024 values in each expert's tensor."""
    path = tmp_path_factory.mktemp("model") / "moe.gguf"
    writer = GGUFWriter(path, "qwen3moe")
    writer.add_name("A tiny one")
    writer.add_block_count(2)
    writer.add_context_length(2048)
    writer.add_embedding_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_expert_count(4)
    writer.add_expert_used_count(2)
    writer.add_chat_template("{{ messages }}")
    writer.add_tensor("token_embd.weight", np.zeros((1000, 32), np.float16))
    blocks = np.zeros((4, 32, 34), np.uint8)  # 32 values of Q8_0 are 34 bytes
    writer.add_tensor("blk.0.ffn_up_exps.weight", blocks, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def test_for_people(sharpi: CommandLine, model: str) -> None:
    result = sharpi("inspect", model)
    lines = result.out.splitlines()
    assert (result.exit_code, result.err) == (0, "")
    assert lines[0].startswith(f"file           {model} (")
    assert lines[1:7] == [
        "name           A tiny one",
        "architecture   qwen3moe, 2 layers, hidden size 32, 4 heads, 2 KV heads",
        "parameters     36.1 K",
        "               34.0 K of them active per token",
        "experts        4, 2 per token",
        "weights        66.8 KiB in 2 tensors, 15.15 bits per weight",
    ]
    assert lines[7].split() == ["F16", "62.5", "KiB", "1", "tensors", "32.0", "K"]
    assert lines[8].split() == ["Q8_0", "4.2", "KiB", "1", "tensors", "4.1", "K"]
    assert "context        2048 tokens" in lines
    assert "chat template  14 characters" in lines


def test_tensors(sharpi: CommandLine, model: str) -> None:
    assert "ffn_up_exps" not in sharpi("inspect", model).out
    last = sharpi("inspect", model, "--tensors").out.splitlines()[-1]
    assert last.split("  ") == ["blk.0.ffn_up_exps.weight", "Q8_0", "4 x 32 x 32", "4.2 KiB"]


def test_json(sharpi: CommandLine, model: str) -> None:
    record = json.loads(sharpi("inspect", model, "--json").out)
    assert record["architecture"] == "qwen3moe"
    assert record["num_parameters"] == 32_000 + 4096
    assert record["num_active_parameters"] == 32_000 + 2048
    assert [each["name"] for each in record["quant_types"]] == ["F16", "Q8_0"]
    assert "tensors" not in record
    with_tensors = json.loads(sharpi("inspect", model, "--json", "--tensors").out)
    assert [each["shape"] for each in with_tensors["tensors"]] == [[1000, 32], [4, 32, 32]]


def test_file_that_says_little(sharpi: CommandLine, tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "v.gguf", add_bos=True)
    result = sharpi("inspect", str(path), "--tensors")
    assert result.exit_code == 0
    assert "unknown layers" not in result.out
    assert "tokenizer      gpt2 (gpt-2), 258 tokens, bos 257, eos 257" in result.out
    assert "chat template  none" in result.out
    assert "kind           a vocabulary without weights, not a language model" in result.out
