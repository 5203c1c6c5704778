// The KV cache: pages of 64 positions, each (KV heads, 64, dim), f16 or q8_0.
//
// q8_0 is, for each page and head, int8 (64, dim) and then half scales (64, dim / 32). Rows are
// read in pieces of 8 values, which a register quadruple holds as they come; the last piece of a
// row of f16 may be a part, filled with zeros.
#pragma once
#include "block_sums.cuh"

namespace sharpi {

constexpr int kPage = 64;
constexpr int kPiece = 8;

struct KvF16 {
  static __device__ __forceinline__ size_t head_bytes(int dim) { return size_t(kPage) * dim * 2; }

  static __device__ __forceinline__ uint4 load(const uint8_t* head, int at, int dim, int piece) {
    const uint8_t* p = head + unsigned(at * dim + piece * kPiece) * 2;
    if (dim % kPiece == 0) return *(const uint4*)p;
    const uint32_t* pairs = (const uint32_t*)p;
    const int left = (dim - piece * kPiece) / 2;
    return make_uint4(pairs[0], left > 1 ? pairs[1] : 0u, left > 2 ? pairs[2] : 0u,
                      left > 3 ? pairs[3] : 0u);
  }

  static __device__ __forceinline__ void unpack(uint4 piece, float* values) {
    const uint32_t pairs[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      values[2 * i] = __half2float(__ushort_as_half((unsigned short)(pairs[i] & 0xffff)));
      values[2 * i + 1] = __half2float(__ushort_as_half((unsigned short)(pairs[i] >> 16)));
    }
  }

  // One warp stores a row of an even number of values.
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

  // x, y: 8 bytes; z: the bits of their scale
  static __device__ __forceinline__ uint4 load(const uint8_t* head, int at, int dim, int piece) {
    const uint2 q = *(const uint2*)(head + unsigned(at * dim + piece * kPiece));
    return make_uint4(q.x, q.y, *(const uint16_t*)(head + scale_at(at, dim, piece / 4)), 0u);
  }

  // A byte's value + 128 as the low bits of the float 2^23: quicker than a conversion.
  static __device__ __forceinline__ void unpack(uint4 piece, float* values) {
    const float scale = __half2float(__ushort_as_half((unsigned short)piece.z));
    const uint32_t q[2] = {piece.x ^ 0x80808080u, piece.y ^ 0x80808080u};
#pragma unroll
    for (int i = 0; i < kPiece; i++) {
      const uint32_t bits = __byte_perm(q[i / 4], 0x4b000000u, 0x7540 + i % 4);
      values[i] = (__int_as_float(int(bits)) - 8388736.f) * scale;
    }
  }

  // One warp stores a row of whole blocks of 32.
  static __device__ __forceinline__ void store(uint8_t* head, int at, int dim, const float* row) {
    const int lane = threadIdx.x % kWarp;
    for (int block = 0; block < dim / 32; block++) {
      const float x = row[32 * block + lane];
      const int peak = max_lanes(__float_as_int(x) & 0x7fffffff);  // a NaN is above all
      const float scale = __fdiv_rn(__int_as_float(peak), 127.f);
      const float inverse = scale < 1e-35f ? 0.f : __fdiv_rn(1.f, scale);
      ((int8_t*)head)[size_t(at) * dim + 32 * block + lane] = int8_t(__float2int_rn(x * inverse));
      if (lane == 0)
        *(uint16_t*)(head + scale_at(at, dim, block)) = __half_as_ushort(__float2half_rn(scale));
    }
  }
};

// Where one KV head's part of one page begins
template <class Kv>
__device__ __forceinline__ size_t kv_head_at(int page, int num_heads, int head, int dim) {
  return (size_t(page) * num_heads + head) * Kv::head_bytes(dim);
}

}  // namespace sharpi
