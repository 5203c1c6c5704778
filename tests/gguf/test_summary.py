"""The summary of a file, which `sharpi inspect` prints."""

import json
from pathlib import Path

import gguf_bytes as pack
import pytest

from sharpi.errors import ModelFileError
from sharpi.gguf.file_summary import FileSummary, QuantTypeSummary, TensorSummary, summarise
from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.reader import open_gguf

INFOS = (
    pack.info("token_embd.weight", [32, 10], QuantType.Q8_0, 0),
    pack.info("blk.0.ffn_gate_inp.weight", [32, 4], QuantType.F32, 352),
    pack.info("blk.0.ffn_up_exps.weight", [32, 8, 4], QuantType.Q8_0, 864),
    pack.info("blk.0.ffn_up_shexp.weight", [32, 8], QuantType.Q8_0, 1952),
    pack.info("blk.1.ffn_down.3.weight", [32, 8], QuantType.Q8_0, 2240),
)
PAIRS = (
    pack.string("general.architecture", "qwen2moe"),
    pack.string("general.name", "tiny\x1b"),
    pack.uint32("qwen2moe.block_count", 2),
    pack.uint32("qwen2moe.context_length", 4096),
    pack.uint32("qwen2moe.embedding_length", 32),
    pack.uint32("qwen2moe.expert_count", 4),
    pack.uint32("qwen2moe.expert_used_count", 2),
    pack.uint32("qwen2moe.attention.head_count", 4),
    pack.pair("qwen2moe.attention.head_count_kv", pack.ARRAY, pack.array(pack.U8, [b"\2", b"\1"])),
    pack.string("tokenizer.ggml.model", "gpt2"),
    pack.string("tokenizer.ggml.pre", "qwen2"),
    pack.pair("tokenizer.ggml.tokens", pack.ARRAY, pack.array(pack.STRING, [pack.text("a")] * 10)),
    pack.uint32("tokenizer.ggml.eos_token_id", 9),
    pack.uint32("tokenizer.ggml.eot_token_id", 8),
    pack.string("tokenizer.chat_template", "{{ x }}"),
    pack.string("tokenizer.chat_template.tool_use", "{{ y }}"),
)


def summary_of(path: Path, pairs: tuple[bytes, ...], infos: tuple[bytes, ...] = ()) -> FileSummary:
    path.write_bytes(pack.gguf(pairs, infos, bytes(4096 if infos else 0)))
    return summarise(open_gguf(path))


@pytest.fixture
def summary(tmp_path: Path) -> FileSummary:
    return summary_of(tmp_path / "moe.gguf", PAIRS, INFOS)


def test_hyperparameters(summary: FileSummary) -> None:
    assert (summary.architecture, summary.version, summary.num_layers) == ("qwen2moe", 3, 2)
    assert (summary.num_experts, summary.num_experts_per_token) == (4, 2)
    assert (summary.context_length, summary.hidden_size) == (4096, 32)
    assert (summary.num_heads, summary.num_kv_heads) == (4, (2, 1))
    assert summary.name == "tiny\ufffd"
    assert summary.license is None


def test_parameters_count_experts_by_their_share(summary: FileSummary) -> None:
    routed, others = 32 * 8 * 4 + 32 * 8, 32 * 10 + 32 * 4 + 32 * 8
    assert summary.num_parameters == routed + others
    assert summary.num_active_parameters == routed // 2 + others


def test_quant_types_with_their_weight(summary: FileSummary) -> None:
    blocks = (10 + 32 + 8 + 8) * 34
    assert summary.quant_types == (
        QuantTypeSummary("Q8_0", 4, 1856, blocks),
        QuantTypeSummary("F32", 1, 128, 512),
    )
    assert (summary.num_tensors, summary.tensor_bytes) == (5, blocks + 512)
    assert summary.bits_per_weight == 8 * (blocks + 512) / (1856 + 128)


def test_the_tokenizer(summary: FileSummary) -> None:
    tokenizer = summary.tokenizer
    assert (tokenizer.model, tokenizer.pre, tokenizer.vocab_size) == ("gpt2", "qwen2", 10)
    assert tokenizer.special_ids == {"eos": 9, "eot": 8}
    assert tokenizer.chat_template_length == 7
    assert tokenizer.other_templates == ("tool_use",)


def test_json_lists_tensors_when_asked(summary: FileSummary) -> None:
    short, long = summary.to_dict(), summary.to_dict(tensors=True)
    assert "tensors" not in short
    assert json.loads(json.dumps(long))["tensors"][2] == {
        "name": "blk.0.ffn_up_exps.weight",
        "quant_type": "Q8_0",
        "shape": [4, 8, 32],
        "num_bytes": 1088,
        "part": 0,
    }
    assert summary.tensors[0] == TensorSummary("token_embd.weight", "Q8_0", (10, 32), 340, 0)


def test_a_file_that_says_nothing(tmp_path: Path) -> None:
    summary = summary_of(tmp_path / "nothing.gguf", ())
    assert (summary.architecture, summary.num_layers, summary.num_heads) == (None, None, None)
    assert (summary.num_parameters, summary.bits_per_weight) == (0, None)
    assert summary.tokenizer.vocab_size is None
    assert not summary.tokenizer.chat_template_length
    json.dumps(summary.to_dict(tensors=True))


def test_the_vocabulary_size_without_a_vocabulary(tmp_path: Path) -> None:
    pairs = (pack.string("general.architecture", "a"), pack.uint32("a.vocab_size", 77))
    assert summary_of(tmp_path / "bare.gguf", pairs).tokenizer.vocab_size == 77


def test_a_key_that_holds_nonsense_is_named(tmp_path: Path) -> None:
    pairs = (pack.string("general.architecture", "a"), pack.string("a.block_count", "many"))
    with pytest.raises(ModelFileError, match=r"a\.block_count must be a whole number"):
        summary_of(tmp_path / "odd.gguf", pairs)
