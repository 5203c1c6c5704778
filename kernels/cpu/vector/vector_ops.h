// Float arithmetic on one token or one attention page, implemented once per instruction set.
#pragma once
#include <cstddef>
#include <cstdint>

#include "attention/packed_numbers.h"

namespace sharpi {

enum class Activate : int32_t {
  Silu = 0,
  GeluTanh = 1,
  Gelu = 2,
  Relu2 = 3,
  Sigmoid = 4,
  Identity = 5,
  ClampedSwiglu = 6,
  LimitedSilu7 = 7,
  LimitedSilu16 = 8
};

constexpr int kQueries = 8;  // queries that share one read of a page

// The running softmax of one query: outputs so far are `sums / total`, scaled by e^-peak.
struct SoftmaxState {
  float peak;
  float total;
  float largest;  // probability in the latest page
};

// kQueries or fewer queries, and one page of one KV head (kv_pages.h).
struct PageAttention {
  const uint8_t* queries;  // as `prepare_queries` left them
  const int32_t* first;    // per query: first visible position within the page, may be negative
  const int32_t* last;     // per query: last visible position within the page, may exceed it
  int num_queries;
  const uint8_t* keys;
  const uint8_t* values;          // null: the values are the beginning of each key
  int key_dim, value_dim;         // value_dim: as stored, a multiple of 16
  float soft_cap;                 // 0: none
  SoftmaxState* const* states;    // per query
  float* const* sums;             // per query (value_dim)
  const uint8_t* next;            // keys of the next page, worth prefetching; or null
  size_t key_bytes, value_bytes;  // of the page
  const PackedKeys* packed_keys;  // what `unpack` made of packed types
  const PackedValues* packed_values;
};

// One token of a causal convolution: out = act(bias + sum over j of weight[j] * rows[j]), the
// oldest row first.
struct ConvolutionStep {
  const float* const* rows;  // (kernel) inputs, each (channels)
  const float* weight;       // (kernel, channels), `stride` floats from row to row
  const float* bias;         // (channels), or null
  float* out;
  int channels, kernel, stride;
  bool silu;
};

// A head's state is stored in panels of kStatePanel of its values, (keys)[panel] each; the last one
// may have only a vector of 16.
constexpr int kStatePanel = 32;

// One token of one panel of a gated delta net's head:
// state = decay * state, then state += key outer beta * (value - key . state); out = query . state.
// Each key decays by itself where `decays` is given.
struct DeltaStep {
  float* state;
  const float *query, *key;  // (keys)
  const float* value;        // (values)
  float* out;                // (values)
  int keys, values;          // values: at most kStatePanel
  float decay, beta;
  const float *decays, *recall;  // (keys); null, or each key's decay, and that times the key
};

// One token of one panel of a Mamba-2 head:
// state = decay * state + write outer dt * x; out = read . state + skip * x.
struct ScanStep {
  float* state;
  const float *write, *read;  // (keys): B and C
  const float* x;             // (values)
  float* out;                 // (values)
  int keys, values;
  float decay, dt, skip;
};

// The functions for keys in one KvLayout. `at`: a position within its page.
struct KeyOps {
  bool (*takes)(const KvLayer&);  // Returns true if its heads can be stored like this.
  void (*store)(const float* key, int dim, int at, uint8_t* keys);
  // Prepares queries, each (dim), times `scale`, for all pages that they are multiplied with
  // together; `out` has kQueryBytes * dim * kQueries bytes.
  void (*prepare_queries)(const float* const* queries, int count, float scale, int dim,
                          uint8_t* out);
  // Unpacks the positions in `range`; `memory` has unpacked_key_bytes. Null: nothing is packed.
  void (*unpack)(const KvPage&, Visible range, uint8_t* memory, PackedKeys&);
  // Computes the scores of the queries (num_queries) with the positions in `range`.
  void (*scores)(const PageAttention&, Visible range, float scores[][kPage]);
};
// The functions for values in one KvLayout.
struct ValueOps {
  bool (*takes)(const KvLayer&);
  void (*store)(const float* value, int dim, int at, uint8_t* values);
  // Does the same as that of keys; `memory` has unpacked_value_bytes.
  void (*unpack)(const KvPage&, Visible range, uint8_t* memory, PackedValues&);
  // Computes sums = sums * rescale + probabilities . values over the positions in `range`.
  void (*add)(const PageAttention&, Visible range, const float probabilities[][kPage],
              const float* rescale);
};
constexpr int kQueryBytes = 4;

struct VectorOps {
  const char* name;
  // out = x / rms(x) * weight; x (n)
  void (*rms_norm)(const float* x, const float* weight, float* out, int n, float epsilon);
  // out = activation(gate) * up
  void (*gated)(Activate, const float* gate, const float* up, float* out, int n);
  // out = a + scale * b; `a` may be null
  void (*add_scaled)(const float* a, const float* b, float scale, float* out, int n);
  // Rotates pairs (i, i + half) or, interleaved, (2i, 2i + 1) of one head's first 2 * half values.
  void (*rope)(float* head, const float* cosines, const float* sines, int half, bool interleaved);
  // By kv_layout; `takes` is null for layouts that the instruction set does not implement.
  KeyOps keys[kNumKvLayouts];
  ValueOps values[kNumKvLayouts];
  // Attends queries to a page: scores, softmax, weighted sums.
  void (*attend_page)(const PageAttention&, const KeyOps&, const ValueOps&);
  // Turns the positions in `range`, each a row of f16 (dim, a multiple of 16), to a page's keys.
  void (*turn_rows)(const uint16_t* rows, int dim, Visible range, uint16_t* keys);
  // out = the orthonormal Hadamard transform of each block of x (n)
  void (*rotate)(const float* x, float* out, int n, int block);
  // Merges one query's partial result (over later positions) into the result so far.
  void (*merge)(SoftmaxState& into, float* sums, const SoftmaxState& part, const float* part_sums,
                int n);
  void (*convolve)(const ConvolutionStep&);
  void (*delta_step)(const DeltaStep&);
  void (*scan_step)(const ScanStep&);
  // out = factor * x / sqrt(|x|^2 + epsilon)
  void (*unit_length)(const float* x, float* out, int n, float epsilon, float factor);
};

// The loops of packed types' rounded layouts, for a set that has better ones than its VectorOps:
// those of q4_0 read it as it is stored, the others what `unpack` made.
struct RoundedLoops {
  void (*scores)(const PageAttention&, Visible range, float scores[][kPage]);
  void (*add)(const PageAttention&, Visible range, const float probabilities[][kPage],
              const float* rescale);
};

// Tables, so that naming one runs no code of its instruction set (isa.h). The second group exists
// on x86-64 only.
extern const VectorOps kPortableVectorOps;
extern const VectorOps kSse41VectorOps, kAvx2VectorOps, kAvx512VectorOps;
extern const KeyOps kAvx512PairedKeys;  // KvLayout::Bf16Pairs, for CPUs that also have AVX512_BF16
extern const ValueOps kAvx512PairedValues;
extern const RoundedLoops kAvxVnniLoops, kAvxVnniPackedLoops;  // for kAvx2VectorOps

}  // namespace sharpi
