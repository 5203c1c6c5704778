// The operations that a program is made of: their parameters, as the caller records them.
//
// `precision` is 0 for int8 activations, 1 for float32, 2 for int8 twice (tiles.h). These structs
// are the ABI: `make abi` writes sharpi/ops/cpu/abi.py from them. Shapes are row-major; T is the
// number of rows of the step (tokens or outputs). All buffers belong to the caller and live as long
// as the program. Pointers marked optional may be null.
#pragma once
#include <cstdint>

#include "attention/kv_pages.h"
#include "matmul/tiles.h"
#include "recurrent.h"
#include "runtime/stage.h"

namespace sharpi {

enum class OpKind : int32_t {
  Embed = 0,
  RmsNorm = 1,
  Linear = 2,
  RopeAngles = 3,
  Rope = 4,
  KvStore = 5,
  Attention = 6,
  Route = 7,
  Experts = 8,
  AddScaled = 9,
  Gather = 10,
  Unary = 11,
  Acquire = 13,
  PredictRoutes = 14,
  LayerNorm = 15,
  HeadLinear = 16,
  ScaleByPosition = 17,
  Join = 18,
  Part = 19,
  KvKeep = 20,
  GateHeads = 21,
  Choose = 22,
  Convolution = 32,
  DeltaNet = 33,
  Mamba2 = 34,
  Gated = 35,
  Split = 36,
};

// out (T, columns) = scale * table[id]
struct EmbedParams {
  const uint8_t* table;
  int32_t type, rows, columns;
  float scale;
  float* out;
};

// out = x / rms(x) * weight, over each of `groups` runs of `width` per row, all with the same
// weight unless weight_per_group is set; may be in place.
struct RmsNormParams {
  const float* x;
  const float* weight;  // (width), or (groups, width) when weight_per_group
  float* out;
  int32_t width, groups, weight_per_group;
  float epsilon;
  int32_t rows;  // Rows
};

// out = (x - mean) / deviation * weight + bias (T, width)
struct LayerNormParams {
  const float* x;
  const float* weight;
  const float* bias;
  float* out;
  int32_t width;
  float epsilon;
  int32_t rows, reserved;
};

struct Matrix {
  const uint8_t* data;
  int32_t type, rows, columns, reserved;
  const float* bias;      // optional (rows)
  const float* residual;  // optional (T, rows)
  float* out;             // (T, rows)
  float scale;            // out = residual + scale * (weight_scale * W x + bias)
  float weight_scale;
};
constexpr int kMaxMatrices = 4;

// Up to four matrices that share one input.
struct LinearParams {
  const float* x;  // (T, columns)
  int32_t num_matrices, precision, rows, reserved;
  Matrix matrices[kMaxMatrices];
};

// cosines, sines (T, half) of position * frequency, times `scale`.
struct RopeAnglesParams {
  const float* frequencies;  // (half)
  float* cosines;
  float* sines;
  int32_t half;
  float scale;
};

// Rotates the first 2 * half values of each head of x (T, heads, head_dim), in place.
struct RopeParams {
  float* x;
  const float* cosines;
  const float* sines;
  int32_t heads, head_dim, half, interleaved;
};

struct KvStoreParams {
  const float* keys;    // (T, heads, key_dim)
  const float* values;  // (T, heads, value_dim), or null where values are part of the keys
  KvLayer cache;
  int32_t precision, reserved;  // precision: as attention's
};

// What an indexer chose: for each token and each of `choices` equal groups of KV heads, `count`
// blocks of `block` positions, in ascending order. Tokens that see no more blocks have no choice.
struct Chosen {
  const int32_t* blocks;  // (T, choices, count)
  int32_t choices, count, block, reserved;

  bool all_of(int slot) const { return slot / block < count; }
  const int32_t* of(int token, int choice) const {
    return blocks + (size_t(token) * choices + choice) * count;
  }
};

// Chooses, by the scores of queries with the keys of `cache`, which every token's attention reads.
// With weights, all heads choose together, by the weighted sum of their scores that are above 0;
// else each one on its own. A block is worth its best position; ties go to the lower block.
struct ChooseParams {
  const float* queries;  // (T, num_heads, key_dim)
  const float* weights;  // optional (T, num_heads)
  int32_t* blocks;       // as Chosen's
  KvLayer cache;
  int32_t num_heads, count, block;
  int32_t local;  // so many of a token's last blocks are always chosen
  float scale;
  int32_t precision;
};

// out (T, num_heads, value_dim): softmax(scale * q.k) v over the positions up to the token's own,
// at most `window` of them, or those of the token's own chunk of `window` positions, or those that
// an indexer chose.
struct AttentionParams {
  const float* queries;  // (T, num_heads, key_dim)
  float* out;
  KvLayer cache;
  int32_t num_heads;
  int32_t window;  // 0: all
  float scale, soft_cap;
  int32_t is_chunked, precision;  // precision: int8 allows attention to round as well
  const float* sinks;  // optional (num_heads): logits that take part in the softmax without a value
  Chosen chosen;       // `blocks` optional

  bool sees_all(int slot) const { return !chosen.blocks || chosen.all_of(slot); }
};

// Copies the keys and values that are used most to other pages, for sequences with `num_kept`.
struct KvKeepParams {
  const float* queries;  // (T, num_heads, key_dim)
  KvLayer cache;
  int32_t num_heads, precision;
  float scale, soft_cap;
};

enum class Scoring : int32_t { Softmax = 0, Sigmoid = 1, SoftmaxOfChosen = 2, SparseMixer = 3 };

// The k best experts of each token and their weights, best first; ties go to the lower id.
struct RouteParams {
  const float* logits;  // (T, num_experts)
  const float* bias;    // optional (num_experts): added for the choice, not for the weight
  int32_t* ids;         // (T, k)
  float* weights;       // (T, k)
  int32_t num_experts, k, scoring, normalise;
  float scale;
  int32_t num_groups, groups_used;  // 0: no groups
  int32_t rows;
};

class ExpertFeed;

// Acquires the experts of a layer's routes, which starts their reads, and prefetches the experts
// predicted for the next layer.
struct AcquireParams {
  ExpertFeed* feed;
  const int32_t* ids;  // (T, k)
  int32_t layer, k, rows, reserved;
};

// Predicts a later layer's experts: what its router would choose from the present hidden state.
// Tells the feed.
struct PredictRoutesParams {
  ExpertFeed* feed;
  const float* logits;  // (num_experts) of the single token predicted for
  const float* bias;    // optional (num_experts)
  int32_t layer, num_experts, k, reserved;
};

// Equal matrices of all experts, one each. `data` is read at every step, so that experts may move.
struct StackedMatrix {
  const uint8_t* const* data;  // (num_experts) addresses
  const float* bias;           // optional (num_experts, rows)
  const float* scales;         // optional (num_experts): scales of the dequantised weights
  int32_t type, rows, columns;
  int32_t first_row;  // of the matrix at an address: gate and up may share one

  const uint8_t* matrix(int expert) const {
    return data[expert] + first_row * row_bytes(QuantType(type), columns);
  }
  float scale(int expert) const { return scales ? scales[expert] : 1.f; }
};

// out (T, hidden) = residual + sum over the chosen e of scale * weight * down_e(act(gate_e x) *
// up_e x), experts in the order of their ids. Without ids every token uses expert 0: a dense or
// shared feed-forward. Without a gate it is down_e(act(up_e x)). With a feed the experts were
// acquired before, and are waited for and released here.
struct ExpertsParams {
  const float* x;         // (T, hidden)
  const int32_t* ids;     // optional (T, k)
  const float* weights;   // optional (T, k); null: 1
  const float* residual;  // optional (T, hidden), may be `out`
  float* out;
  StackedMatrix gate, up, down;  // gate.data optional
  int32_t num_experts, k, activation, precision;
  float scale;
  int32_t rows;
  ExpertFeed* feed;  // optional
  int32_t layer;
  int32_t weighs_input;  // 1: weights multiply x rather than an expert's output
};

// out = a + scale * b (T, width); a optional
struct AddScaledParams {
  const float* a;
  const float* b;
  float* out;
  int32_t width;
  float scale;
  int32_t rows, reserved;
};

// out[i] = x[output_rows[i]]
struct GatherParams {
  const float* x;
  float* out;
  int32_t width, reserved;
};

enum class Unary : int32_t { Sigmoid = 0, SoftCap = 1, Clamp = 2, Xielu = 3 };

// x = function(x), in place (T, width); what a to d are is said at Ops.unary.
struct UnaryParams {
  float* x;
  int32_t width, rows;
  Unary function;
  float a, b, c, d;
  int32_t reserved;
};

// out = activation(gate) * x (T, width)
struct GatedParams {
  const float* gate;
  const float* x;
  float* out;
  int32_t width, activation, rows, reserved;
};

// Splits each row, `groups` runs of widths[0] + widths[1] + ... values, into outputs of groups *
// widths[i] values.
constexpr int kMaxParts = 4;
struct SplitParams {
  const float* x;
  int32_t groups, num_parts, rows, reserved;
  int32_t widths[kMaxParts];
  float* outs[kMaxParts];  // (T, groups * widths[i])
};

// out (T, heads, rows): each head's values (T, heads, columns) times the head's own matrix
struct HeadLinearParams {
  const float* x;
  StackedMatrix stacked;  // one matrix per head
  float* out;
  int32_t num_heads, precision;
};

// Multiplies x (T, width) by 1 + rate * ln(1 + floor((position + offset) / interval)), in place.
struct ScaleByPositionParams {
  float* x;
  int32_t width, interval;
  float rate;
  int32_t offset;
};

enum class HeadGate : int32_t { Sigmoid = 0, Softplus = 1 };

// Multiplies each of x's runs of width / num_gates by the activation of its gate, in place.
struct GateHeadsParams {
  const float* gate;  // (T, num_gates)
  float* x;           // (T, width)
  int32_t width, num_gates;
  HeadGate activation;
  int32_t reserved;
};

// Concatenates two tensors run by run, the opposite of a split: (T, groups * (widths[0] +
// widths[1])).
struct JoinParams {
  const float* first;   // (T, groups * widths[0])
  const float* second;  // (T, groups * widths[1])
  float* out;
  int32_t widths[2];
  int32_t groups, rows;
};

// out = x[begin : begin + width] of each row (T, x_width)
struct PartParams {
  const float* x;
  float* out;
  int32_t x_width, begin, width, rows;
};

class Program;
void add_embed(Program&, const EmbedParams&);
void add_rms_norm(Program&, const RmsNormParams&);
void add_linear(Program&, const LinearParams&);
void add_rope_angles(Program&, const RopeAnglesParams&);
void add_rope(Program&, const RopeParams&);
void add_kv_store(Program&, const KvStoreParams&);
void add_kv_keep(Program&, const KvKeepParams&);
void add_attention(Program&, const AttentionParams&);
void add_attention_over_chosen(Program&, const AttentionParams&);
void add_choose(Program&, const ChooseParams&);
void add_route(Program&, const RouteParams&);
void add_experts(Program&, const ExpertsParams&);
void add_add_scaled(Program&, const AddScaledParams&);
void add_gather(Program&, const GatherParams&);
void add_unary(Program&, const UnaryParams&);
void add_acquire(Program&, const AcquireParams&);
void add_predict_routes(Program&, const PredictRoutesParams&);
void add_layer_norm(Program&, const LayerNormParams&);
void add_head_linear(Program&, const HeadLinearParams&);
void add_scale_by_position(Program&, const ScaleByPositionParams&);
void add_gate_heads(Program&, const GateHeadsParams&);
void add_join(Program&, const JoinParams&);
void add_part(Program&, const PartParams&);
void add_gated(Program&, const GatedParams&);
void add_split(Program&, const SplitParams&);

}  // namespace sharpi
