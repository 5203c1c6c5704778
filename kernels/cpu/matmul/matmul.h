// Products of quantised matrices with tokens: the contract that every instruction set implements.
//
// One call is one tile: up to 32 consecutive rows of a row-major GGUF matrix times any number of
// tokens. The engine shares tiles among threads and fuses the next steps (bias, activation,
// weighted sum) on the small result.
//
// Every batch gives the same bits: the result for one token depends on that token and the rows
// alone, never on the number of other tokens, their order, or the thread count. So every
// implementation uses one order of summation.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sharpi {

// Ids of the GGUF format (ggml_type).
enum class QuantType : int32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  IQ1_M = 29,
  BF16 = 30,
  TQ1_0 = 34,
  TQ2_0 = 35,
  MXFP4 = 39,
  NVFP4 = 40,
  Q1_0 = 41,
  Q2_0 = 42,
};

constexpr int kTileRows = 32;

// 256 activations rounded to int8 with one scale for every 32, in natural order. The sums are
// needed for mins and biases. A token of n values is ceil(n / 256) of these; the values past n are
// zero. One scale for all 256 would be cheaper, but hidden states have outliers: on SmolLM2-135M it
// costs 1.7 % of perplexity, scales for every 32 cost 0.3 %.
struct alignas(64) Activation {
  int8_t q[256];
  int16_t sum32[8];   // sums of 32
  int16_t sum16[16];  // sums of 16
  float scale[8];     // value = q * scale[i / 32]
  int16_t sum8[16];   // of columns 2, 3, 6, 7, 10, 11, 14 and 15 of every 16: for AVX2's kernels
};

// Exact: activations stay float32 and weights are dequantised to float32 on the fly (for parity
// tests; F32, F16 and BF16 weights always use it). Int8: activations are rounded to `Activation`
// blocks.
enum class Precision : int32_t { Int8 = 0, Exact = 1 };

struct Product {
  const uint8_t* rows;  // the first row's blocks; any alignment
  size_t row_bytes;     // distance from one row to the next
  int num_rows;         // 1..32
  int num_columns;      // K: a multiple of the type's block size; not always of 256
  const void* const*
      tokens;  // per token: const Activation* (Int8) or const float* (Exact, and all float types)
  int num_tokens;  // at least 1, any number
  float* out;  // (num_tokens, 32) floats, 64-byte aligned; columns past num_rows are left undefined
  // the rows that this thread takes next, num_rows of them, worth prefetching; or null
  const uint8_t* next;
};
using ProductFn = void (*)(const Product&);

struct MatmulKernels {
  const char*
      name;  // "avx512_vbmi", "avx512_vnni", "avx_vnni", "avx2", "sse41", "neon", "portable"
  // Returns the product for a type, or null where the type is unknown.
  ProductFn (*product)(QuantType, Precision);
  // Rounds values (n) to ceil(n / 256) blocks.
  void (*quantise)(const float* values, int n, Activation* out);
  // Dequantises one row's `num_columns` values to float32 (for embedding rows and tests). The
  // pointer is null where the type is unknown.
  void (*dequantise)(QuantType, const uint8_t* row, int num_columns, float* out);
};

// Return the values and the bytes of a block; 0 for an unknown type.
int block_values(QuantType);
int block_bytes(QuantType);
inline bool reads_floats(QuantType type, Precision precision) {
  return precision == Precision::Exact || type == QuantType::F32 || type == QuantType::F16 ||
         type == QuantType::BF16;
}

// Tables, so that naming one runs no code of its instruction set (isa.h). The second group exists
// on x86-64 only.
extern const MatmulKernels kPortableMatmul;
extern const MatmulKernels kSse41Matmul, kAvx2Matmul, kAvxVnniMatmul, kAvx512VnniMatmul,
    kAvx512VbmiMatmul;
const MatmulKernels* neon_matmul();  // on ARM only: with dot products where the CPU has them

}  // namespace sharpi
