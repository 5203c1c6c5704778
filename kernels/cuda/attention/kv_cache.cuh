// The KV cache: pages of 64 positions, each (KV heads, 64, dim). All types but f16 hold heads that
// were transformed (hadamard.cuh).
//
// A q8_0 page holds, for each head, int8 (64, dim) and then half scales (64, dim / 32);
// kv_packed.cuh has the types of fewer bits. Rows are read in pieces of 8 or 4 values that begin at
// `from`, and stay packed until `unpack`; the last piece of an f16 row may be shorter and is padded
// with zeros.
#pragma once
#include "kv_packed.cuh"

// The types of keys and of values that a file of attention is compiled for.
#ifndef FIRST_TYPE
#define FIRST_TYPE F16
#define SECOND_TYPE F16
#endif
#define KV_OF_TYPE(type) KV_OF_NAME(type)
#define KV_OF_NAME(type) sharpi::Kv##type
#define WITH_TYPES(name) WITH_NAMES(name, FIRST_TYPE, SECOND_TYPE)
#define WITH_NAMES(name, first, second) JOINED_NAMES(name, first, second)
#define JOINED_NAMES(name, first, second) name##_##first##_##second

namespace sharpi {

struct KvF16 {
  static __device__ __forceinline__ size_t head_bytes(int dim) { return size_t(kPage) * dim * 2; }

  static __device__ __forceinline__ uint4 load_8(const uint8_t* head, int at, int dim, int from) {
    const uint8_t* p = head + unsigned(at * dim + from) * 2;
    if (dim % 8 == 0) return *(const uint4*)p;
    const uint2 low = pairs(p, dim - from), high = pairs(p + 8, dim - from - 4);
    return make_uint4(low.x, low.y, high.x, high.y);
  }
  static __device__ __forceinline__ uint2 load_4(const uint8_t* head, int at, int dim, int from) {
    const uint8_t* p = head + unsigned(at * dim + from) * 2;
    return dim % 4 == 0 ? *(const uint2*)p : pairs(p, dim - from);
  }
  // Loads four halves, or as many as are left.
  static __device__ __forceinline__ uint2 pairs(const uint8_t* p, int left) {
    const uint32_t* words = (const uint32_t*)p;
    return make_uint2(left > 0 ? words[0] : 0u, left > 2 ? words[1] : 0u);
  }

  static __device__ __forceinline__ void unpack(uint2 piece, float* values) {
    values[0] = __half2float(__ushort_as_half((unsigned short)(piece.x & 0xffff)));
    values[1] = __half2float(__ushort_as_half((unsigned short)(piece.x >> 16)));
    values[2] = __half2float(__ushort_as_half((unsigned short)(piece.y & 0xffff)));
    values[3] = __half2float(__ushort_as_half((unsigned short)(piece.y >> 16)));
  }
  static __device__ __forceinline__ void unpack(uint4 piece, float* values) {
    unpack(make_uint2(piece.x, piece.y), values);
    unpack(make_uint2(piece.z, piece.w), values + 4);
  }

  // Stores a row of an even number of values, by one warp.
  static __device__ __forceinline__ void store(uint8_t* head, int at, int dim, const float* row) {
    __half2* p = (__half2*)(head + size_t(at) * dim * 2);
    for (int i = threadIdx.x % kWarp; i < dim / 2; i += kWarp)
      p[i] = __floats2half2_rn(row[2 * i], row[2 * i + 1]);
  }
};

struct KvQ8_0 {
  static __device__ __forceinline__ size_t head_bytes(int dim) {
    return size_t(kPage) * (dim + dim / 32 * 2);
  }
  static __device__ __forceinline__ unsigned scale_at(int at, int dim, int block) {
    return kPage * dim + (at * (dim / 32) + block) * 2;
  }

  // Loads the 8-bit values, followed by the bits of their scale.
  static __device__ __forceinline__ uint4 load_8(const uint8_t* head, int at, int dim, int from) {
    const uint2 q = *(const uint2*)(head + unsigned(at * dim + from));
    return make_uint4(q.x, q.y, *(const uint16_t*)(head + scale_at(at, dim, from / 32)), 0u);
  }
  static __device__ __forceinline__ uint2 load_4(const uint8_t* head, int at, int dim, int from) {
    const uint32_t q = *(const uint32_t*)(head + unsigned(at * dim + from));
    return make_uint2(q, *(const uint16_t*)(head + scale_at(at, dim, from / 32)));
  }

  // Each byte's value + 128 becomes the low bits of the float 2^23, which is faster than a
  // conversion.
  static __device__ __forceinline__ void unpack(uint2 piece, float* values) {
    const float scale = __half2float(__ushort_as_half((unsigned short)piece.y));
    const uint32_t q = piece.x ^ 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t bits = __byte_perm(q, 0x4b000000u, 0x7540 + i);
      values[i] = (__int_as_float(int(bits)) - 8388736.f) * scale;
    }
  }
  static __device__ __forceinline__ void unpack(uint4 piece, float* values) {
    unpack(make_uint2(piece.x, piece.z), values);
    unpack(make_uint2(piece.y, piece.z), values + 4);
  }

  // Stores a row of whole blocks of 32, by one warp.
  static __device__ __forceinline__ void store(uint8_t* head, int at, int dim, const float* row) {
    const int lane = threadIdx.x % kWarp;
    for (int block = 0; block < dim / 32; block++) {
      const float x = row[32 * block + lane];
      // a NaN is larger than any number
      const int peak = max_lanes(__float_as_int(x) & 0x7fffffff);
      const float scale = __fdiv_rn(__int_as_float(peak), 127.f);
      const float inverse = scale < 1e-35f ? 0.f : __fdiv_rn(1.f, scale);
      ((int8_t*)head)[size_t(at) * dim + 32 * block + lane] = int8_t(__float2int_rn(x * inverse));
      if (lane == 0)
        *(uint16_t*)(head + scale_at(at, dim, block)) = __half_as_ushort(__float2half_rn(scale));
    }
  }
};

// A type of the KV cache as a number, which is its code in sharpi/ops/cpu/kv_cache.py.
enum KvNumber { kKvF16, kKvQ8_0, kKvQ5_1, kKvQ5_0, kKvQ4_0, kKvIQ4_NL, kKvTurbo3 };

// Maps tokens to pages. tables (sequences, stride): each row lists the pages of positions 0..63,
// 64..127, ... `sequences` (T,): each token's row; null: all tokens use the first one.
struct PageTables {
  const int* tables;
  const int* sequences;
  int stride;

  __device__ __forceinline__ const int* of(int token) const {
    return sequences ? tables + size_t(sequences[token]) * stride : tables;
  }
};

// Returns the offset of one KV head's part of one page.
template <class Kv>
__device__ __forceinline__ size_t kv_head_at(int page, int num_heads, int head, int dim) {
  return (size_t(page) * num_heads + head) * Kv::head_bytes(dim);
}

}  // namespace sharpi
