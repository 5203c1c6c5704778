"""Computes an upper bound for the memory of the engine's buffers, before any step is recorded."""

from msgspec import Struct

from sharpi.gguf.reader import GgufFile
from sharpi.model.config import ModelConfig
from sharpi.ops.attention_shape import IndexShape
from sharpi.ops.cpu.program import Rounding

_FLOAT_BYTES = 4
# Constants of matmul.h, tiles.h, stage.h, attend_span.h, op_attention.cpp and expert_jobs.h in
# kernels/cpu.
_ACTIVATION_VALUES, _ACTIVATION_BYTES = 256, 384
_TILE_ROWS, _TILE_BUFFERS = 32, 3
_SPLIT_TOKENS, _SPLIT_DECODES, _SPLIT_SPANS = 4, 16, 64
_SPAN_POSITIONS, _PARTIAL_EXTRA = 512, 16
_JOB_BYTES, _ROUTE_BYTES, _COUNTER_BYTES, _GROUPING_BYTES = 12, 8, 4, 64
_ALLOWANCE = 1 << 20  # step arrays, expert address tables, alignment between buffers


class BufferWidths(Struct, frozen=True):
    """The number of values per token in each kind of buffer, for the layer with the most."""

    hidden: int
    query: int  # of all heads
    key: int  # of all heads
    num_heads: int
    recurrent: int  # all values that a recurrent layer holds at a time
    rope: int
    vocab: int
    num_experts: int
    num_experts_per_token: int
    num_moe_layers: int
    expert_hidden: int  # of all experts of one token, or of a wider dense or shared feed-forward
    expert_hidden_blocks: int
    layer_inputs: int = 0  # of all layers together, computed before the first one
    index: int = 0  # of an indexer: queries, key, weights and the chosen blocks
    num_choices: int = 0  # of an indexer's heads
    num_chosen: int = 0  # positions that an indexer chooses


def read_widths(file: GgufFile, config: ModelConfig) -> BufferWidths:
    """Returns the widths of a model, from its configuration and the shapes of its tensors."""
    used, shapes = config.num_experts_per_token, config.attention
    hidden = [
        (t.shape[-2] // (2 if "gate_up" in name else 1), used if "_exps." in name else 1)
        for name, t in file.tensors.items()
        if (".ffn_up" in name or "gate_up" in name) and len(t.shape) > 1
    ]
    embedding = file.tensors.get("token_embd.weight")
    indexes = [shape.index for shape in shapes if shape.index]
    return BufferWidths(
        hidden=config.hidden_size,
        query=max((s.num_heads * max(s.key_dim, s.value_dim) for s in shapes), default=0),
        key=max((s.num_kv_heads * max(s.key_dim, s.value_dim) for s in shapes), default=0),
        num_heads=max((s.num_heads for s in shapes), default=0),
        recurrent=max(sum(s.step_width for s in mixer.state_shapes) for mixer in config.mixers),
        rope=config.rope_width,
        vocab=embedding.shape[0] if embedding is not None else 0,
        num_experts=config.num_experts,
        num_experts_per_token=used,
        num_moe_layers=sum(".ffn_gate_inp.weight" in name for name in file.tensors),
        expert_hidden=max((width * count for width, count in hidden), default=0),
        expert_hidden_blocks=max((_blocks(width) * count for width, count in hidden), default=0),
        layer_inputs=config.num_layers * config.layer_input_width,
        index=max((_index_width(each) for each in indexes), default=0),
        num_choices=max((each.num_choices for each in indexes), default=0),
        num_chosen=max((each.num_positions for each in indexes), default=0),
    )


def _index_width(index: IndexShape) -> int:
    queries = index.num_heads * index.key_dim
    return 2 * queries + 2 * index.key_dim + index.num_heads + index.num_choices * index.num_chosen


def scratch_bytes(
    widths: BufferWidths,
    *,
    batch_size: int,
    num_positions: int,
    rounding: Rounding,
    num_threads: int,
    num_outputs: int = 1,
) -> int:
    """Returns an upper bound for the bytes of a recorded step's buffers and of its threads' tiles.

    `batch_size`: the most tokens of a step. `num_outputs`: the tokens for which logits are
    computed. `num_positions`: the positions of the context.
    """
    rows = max(batch_size, num_outputs)
    return (
        _arena_bytes(widths, batch_size, num_outputs)
        + _activation_bytes(widths, rows, rounding)
        + _expert_scratch_bytes(widths, rows)
        + _partial_bytes(widths, num_positions)
        + num_threads * _tile_bytes(rows)
        + _ALLOWANCE
    )


def _arena_bytes(w: BufferWidths, batch_size: int, num_outputs: int) -> int:
    """Returns the bytes of a step's values that are alive at once, and of all layers' routes."""
    attention = 2 * w.query + 3 * w.key
    feed_forward = w.hidden + w.num_experts + w.num_experts_per_token + 1
    routes = w.num_moe_layers * w.num_experts_per_token
    a_token = w.rope + 3 * w.hidden + max(attention, w.recurrent, feed_forward) + routes
    a_token += 3 * w.layer_inputs  # embedded, projected and summed
    a_token += w.index
    an_output = 4 * w.hidden + w.num_experts + w.num_experts_per_token + 2 * w.vocab
    return _FLOAT_BYTES * (batch_size * a_token + num_outputs * an_output)


def _activation_bytes(w: BufferWidths, rows: int, rounding: Rounding) -> int:
    """Returns the bytes of quantised activations: inputs of matrices, also of experts' down."""
    levels = 2 if rounding == "int16" else 1
    blocks = _blocks(max(w.hidden, w.query, w.recurrent)) + w.expert_hidden_blocks
    return rows * levels * blocks * _ACTIVATION_BYTES


def _expert_scratch_bytes(w: BufferWidths, rows: int) -> int:
    """Returns the bytes of experts' hidden rows and of the lists that group tokens by expert."""
    used = max(1, w.num_experts_per_token)
    jobs = min(max(1, w.num_experts), rows * used)
    counters = jobs * _COUNTER_BYTES * max(1, w.expert_hidden_blocks)
    grouping = _GROUPING_BYTES + jobs * _JOB_BYTES + rows * used * _ROUTE_BYTES + counters
    return rows * w.expert_hidden * _FLOAT_BYTES + grouping


def _partial_bytes(w: BufferWidths, num_positions: int) -> int:
    """Returns the bytes of partial results of attention, which only steps of few tokens need."""
    spans = -(-num_positions // _SPAN_POSITIONS)
    values = w.query // max(1, w.num_heads) + _PARTIAL_EXTRA
    floats = w.num_heads * (_PARTIAL_EXTRA + values)
    kept = max(_SPLIT_TOKENS * spans, _SPLIT_DECODES * min(spans, _SPLIT_SPANS))
    chosen = _SPLIT_DECODES * -(-min(w.num_chosen, num_positions) // _SPAN_POSITIONS)
    scores = _SPLIT_DECODES * w.num_choices * spans * _SPAN_POSITIONS
    return max(max(kept, chosen) * floats, scores) * _FLOAT_BYTES


def _tile_bytes(rows: int) -> int:
    """Returns the bytes of a thread's tiles and token addresses; int16 has two rows per token."""
    return 2 * rows * (_TILE_BUFFERS * _TILE_ROWS * _FLOAT_BYTES + 8)


def _blocks(width: int) -> int:
    return -(-width // _ACTIVATION_VALUES)
