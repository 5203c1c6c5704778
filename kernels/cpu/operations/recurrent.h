// The operations of recurrent layers: their parameters, part of the ABI (ops.h), and the place of a
// sequence's state.
//
// A state is float32 and lies in the sequence's own memory, `state_offset` floats from its start.
// Tokens of a sequence are adjacent within a step; one at position 0 starts from a state of zeros,
// whatever is in memory.
#pragma once
#include <cmath>
#include <cstdint>

#include "runtime/stage.h"

namespace sharpi {

// out (T, channels) = act(bias + sum over j of weight[j] * x[t - (kernel - 1) + j]); state (kernel
// - 1, channels), oldest first.
struct ConvolutionParams {
  const float* x;       // (T, channels)
  const float* weight;  // (kernel, channels)
  const float* bias;    // optional (channels)
  float* out;
  int64_t state_offset;
  int32_t channels, kernel, silu, reserved;
};

// out (T, value_heads, value_dim): the gated delta rule, each head on its own; state (value_heads)
// in panels of kStatePanel values, (key_dim)[panel] each, values rounded up to 16. Queries and keys
// are normalised to unit length, and queries then divided by sqrt(key_dim). With `by_key`, alpha is
// (T, value_heads, key_dim) and dt_bias (value_heads, key_dim): each key decays by itself.
struct DeltaNetParams {
  const float* qkv;      // (T, 2 * key_heads * key_dim + value_heads * value_dim)
  const float* beta;     // (T, value_heads) before the sigmoid
  const float* alpha;    // (T, value_heads); decay = e^(a * softplus(alpha + dt_bias))
  const float* a;        // (value_heads), negative
  const float* dt_bias;  // (value_heads)
  float* out;
  int64_t state_offset;
  int32_t key_heads, value_heads, key_dim, value_dim;
  int32_t by_key;
  float floor;    // if below 0, decay = e^(floor * sigmoid(-a * (alpha + dt_bias)))
  int32_t tiled;  // 1: value head h has key head h % key_heads; 0: h / (value_heads / key_heads)
  float epsilon;
};

// out (T, heads, head_dim) = C . state + d * x, state = e^(a dt) * state + B outer dt * x, dt =
// softplus(dt + dt_bias); state (heads) in panels as above, (state_size)[panel] each.
struct Mamba2Params {
  const float* xbc;  // (T, heads * head_dim + 2 * groups * state_size)
  const float* dt;   // (T, heads)
  const float* a;    // (heads), negative
  const float* d;    // (heads)
  const float* dt_bias;
  float* out;
  int64_t state_offset;
  int32_t heads, groups, head_dim, state_size;
};

// The tokens of one sequence within a step: [begin, end).
struct Run {
  int begin, end;
  float* state;  // of this operation
  // The memory in which each of the run's tokens leaves the state; null for `state` itself.
  float* const* after;
};

inline int count_runs(const Step& step) {
  int count = step.num_tokens > 0;
  for (int t = 1; t < step.num_tokens; t++) count += step.sequences[t] != step.sequences[t - 1];
  return count;
}

inline Run find_run(const Step& step, int index, int64_t state_offset) {
  int begin = 0, end = 0;
  for (int i = 0; i <= index; i++) {
    begin = end;
    for (end = begin + 1; end < step.num_tokens && step.sequences[end] == step.sequences[begin];)
      end++;
  }
  float* const* after = step.states_after ? step.states_after + begin : nullptr;
  return {begin, end, step.states[step.sequences[begin]] + state_offset,
          after && *after ? after : nullptr};
}

inline int round_to_vectors(int values) { return (values + 15) / 16 * 16; }
inline float softplus(float x) { return x > 20.f ? x : std::log1p(std::exp(x)); }

class Program;
void add_convolution(Program&, const ConvolutionParams&);
void add_delta_net(Program&, const DeltaNetParams&);
void add_mamba2(Program&, const Mamba2Params&);

}  // namespace sharpi
