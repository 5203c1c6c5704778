"""`sharpi inspect`: the same facts as text and as JSON, for files with few and with many."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine
from gguf import GGMLQuantizationType, GGUFWriter
from tiny_vocabulary import write_vocabulary

from sharpi.gguf.reader import open_gguf
from sharpi.resources import demo_model


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


def test_facts_of_the_gguf_standard(sharpi: CommandLine, model: str) -> None:
    assert "file type      Q4_K_M" in sharpi("inspect", str(demo_model())).out.splitlines()
    assert json.loads(sharpi("inspect", str(demo_model()), "--json").out)["other_keys"] == []
    path = Path(model).with_name("own.gguf")
    writer = GGUFWriter(path, "llama")
    writer.add_string("llama.own_key", "x")
    writer.add_head_count(4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert "other keys     llama.own_key" in sharpi("inspect", str(path)).out.splitlines()


NAN, INFINITE, LARGE = b"\x00\x7e", b"\x00\x7c", b"\xff\x7b"  # 16-bit floats


@pytest.mark.parametrize(
    ("tensor", "at", "damage", "fault"),
    [
        ("blk.3.ffn_up_exps.weight", 2, NAN, "1 of 8192 scales are NaN"),
        ("blk.0.ffn_down_exps.weight", 208, INFINITE, "1 of 4096 scales are infinite"),
        ("blk.0.attn_q.weight", 34, LARGE, "values up to 8.3e+06, out of the range"),
        ("blk.5.attn_norm.weight", 0, b"\x00\x00\xc0\x7f", "1 of 256 values are NaN"),
        (
            "blk.2.ffn_gate_exps.weight",
            14400,
            bytes(144 * 500),
            "zero scales for 70.3 KiB in a row",
        ),
    ],
)
def test_check_names_damaged_tensors(
    sharpi: CommandLine, tmp_path: Path, tensor: str, at: int, damage: bytes, fault: str
) -> None:
    content = bytearray(demo_model().read_bytes())
    with open_gguf(demo_model()) as file:
        begin = file.tensors[tensor].offset + at
        type_name = file.tensors[tensor].quant_type.name
    content[begin : begin + len(damage)] = damage
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    result = sharpi("inspect", str(path), "--check")
    assert (result.exit_code, result.err, result.out.count("\n")) == (1, "", 1)
    assert result.out.startswith(f"{tensor} ({type_name}): ")
    assert fault in result.out
    record = json.loads(sharpi("inspect", str(path), "--check", "--json").out)
    assert (list(record["damaged"]), record["unchecked"]) == ([tensor], {})


def test_check_of_a_sound_file(sharpi: CommandLine) -> None:
    result = sharpi("inspect", str(demo_model()), "--check")
    assert (result.exit_code, result.err) == (0, "")
    assert result.out == "all is well: 75 tensors were read\n"


@pytest.mark.parametrize(
    ("kind", "block", "fault"),
    [
        ("MXFP4", [255] + [17] * 16, "1 of 64 scales are NaN"),
        ("BF16", [0xC0, 0x7F], "1 of 64 values are NaN"),
        ("IQ1_M", [0] * 49 + [0x70, 0, 0xF0, 0, 0xF0, 0, 0xF0], "256 of 16384 values are NaN"),
        ("Q8_K", [0] * 292, ""),
        ("I32", [255] * 4, ""),
    ],
)
def test_check_of_other_types(
    sharpi: CommandLine, tmp_path: Path, kind: str, block: list[int], fault: str
) -> None:
    """One damaged block among 63 sound ones; there is none among whole numbers."""
    theirs = GGMLQuantizationType[kind]
    blocks = np.full((64, len(block)), 17, np.uint8)
    blocks[5] = block
    writer = GGUFWriter(tmp_path / "t.gguf", "llama")
    writer.add_tensor("a.weight", blocks, raw_dtype=theirs)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    result = sharpi("inspect", str(tmp_path / "t.gguf"), "--check")
    if kind == "Q8_K":
        assert (result.exit_code, result.out) == (0, "all is well: 0 tensors were read\n")
        assert "1 tensors of type Q8_K were not checked" in result.err
    else:
        assert (result.exit_code, fault in result.out) == (int(bool(fault)), True)


def test_what_the_chat_template_holds(sharpi: CommandLine, tmp_path: Path) -> None:
    refuses = "{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}{{ m.content }}"
    template = f"{{% for m in messages %}}{refuses}{{% endfor %}}"
    path = write_vocabulary(tmp_path / "talks.gguf", add_bos=True, template=template)
    lines = sharpi("inspect", str(path)).out.splitlines()
    assert "tool calls     in the notation of Hermes" in lines
    assert any(
        line.startswith("no place for   a system message: its text begins") for line in lines
    )
    assert not any("user messages in a row" in line for line in lines)
