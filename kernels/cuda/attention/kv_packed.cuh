// Pages of packed keys or values: the rows of a KV head in codes, with scales.
#pragma once
#include "kv_levels.cuh"
#include "kv_page.cuh"

namespace sharpi {

// Joins the low `kBits` bits of adjacent lanes' codes into words; the first lane of each word has
// it.
template <int kBits>
__device__ __forceinline__ uint32_t join_lanes(uint32_t code) {
  constexpr int kLanes = 32 / kBits;
  code = (code & ((1 << kBits) - 1)) << threadIdx.x % kLanes * kBits;
  for (int offset = 1; offset < kLanes; offset *= 2)
    code |= __shfl_xor_sync(kFullWarp, code, offset);
  return code;
}

// A head's part of a page is, one after the other: the low bits of the codes, (64, dim) of kLow
// bits; the top bits, (64, dim) of one bit; f16 scales, (64, dim / 32) or (64); minima likewise.
template <class Type>
struct KvPacked {
  static constexpr int kBlock = 32, kLow = Type::kLow;

  static __device__ __forceinline__ size_t head_bytes(int dim) {
    return scales_at(dim) + (Type::kHasMinimum ? 2 : 1) * scale_bytes(dim);
  }
  static __device__ __forceinline__ unsigned scales_at(int dim) {
    return kPage * dim / 8 * (kLow + Type::kHasTop);
  }
  static __device__ __forceinline__ unsigned scale_bytes(int dim) {
    return kPage * (Type::kHasRowScale ? 1 : dim / kBlock) * 2;
  }
  static __device__ __forceinline__ unsigned scale_at(int at, int dim, int from) {
    return scales_at(dim) + (Type::kHasRowScale ? at : at * (dim / kBlock) + from / kBlock) * 2;
  }
  static __device__ __forceinline__ unsigned top_at(int at, int dim, int from) {
    return (kPage * kLow * dim + at * dim + from) / 8;
  }

  // Loads the codes' low and top bits, the scale and the minimum.
  static __device__ __forceinline__ uint4 load_8(const uint8_t* head, int at, int dim, int from) {
    const uint8_t *low = head + unsigned(at * dim + from) * kLow / 8, *scale = head;
    scale += scale_at(at, dim, from);
    return make_uint4(
        kLow == 4 ? *(const uint32_t*)low : uint32_t(*(const uint16_t*)low),
        Type::kHasTop ? head[top_at(at, dim, from)] : 0u, *(const uint16_t*)scale,
        Type::kHasMinimum ? uint32_t(*(const uint16_t*)(scale + scale_bytes(dim))) : 0u);
  }
  static __device__ __forceinline__ uint2 load_4(const uint8_t* head, int at, int dim, int from) {
    const uint8_t *low = head + unsigned(at * dim + from) * kLow / 8, *scale = head;
    scale += scale_at(at, dim, from);
    uint32_t codes = kLow == 4 ? uint32_t(*(const uint16_t*)low) : uint32_t(*low);
    uint32_t scales = *(const uint16_t*)scale;
    if (Type::kHasTop) codes |= uint32_t(head[top_at(at, dim, from)]) >> (from & 4) << 16;
    if (Type::kHasMinimum) scales |= uint32_t(*(const uint16_t*)(scale + scale_bytes(dim))) << 16;
    return make_uint2(codes, scales);
  }

  // Each level's byte becomes the low bits of the float 2^23.
  static __device__ __forceinline__ void unpack_4(uint32_t low, uint32_t top, uint32_t scale_bits,
                                                  uint32_t minimum_bits, float* values) {
    const float scale = __half2float(__ushort_as_half((unsigned short)scale_bits));
    const float minimum = __half2float(__ushort_as_half((unsigned short)minimum_bits));
    const uint32_t bytes = Type::bytes(low, top);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t bits = __byte_perm(bytes, 0x4b000000u, 0x7540 + i);
      const float level = __int_as_float(int(bits)) - (8388608.f + Type::kZero);
      values[i] = Type::kHasMinimum ? level * scale + minimum : level * scale;
    }
  }
  static __device__ __forceinline__ void unpack(uint2 piece, float* values) {
    unpack_4(piece.x & 0xffff, piece.x >> 16 & 15, piece.y & 0xffff, piece.y >> 16, values);
  }
  static __device__ __forceinline__ void unpack(uint4 piece, float* values) {
    constexpr int kBits = 4 * kLow;
    unpack_4(piece.x & ((1u << kBits) - 1), piece.y & 15, piece.z, piece.w, values);
    unpack_4(piece.x >> kBits, piece.y >> 4, piece.z, piece.w, values + 4);
  }

  // Stores a row of whole blocks of 32, by one warp.
  static __device__ __forceinline__ void store(uint8_t* head, int at, int dim, const float* row) {
    const int lane = threadIdx.x % kWarp;
    CodeScale scale{};
#pragma unroll 1
    for (int from = 0; from < dim; from += kBlock) {
      if (!Type::kHasRowScale || from == 0) {
        scale = Type::measure(row + from, Type::kHasRowScale ? dim : kBlock);
        if (lane == 0) store_scale(head + scale_at(at, dim, from), scale, dim);
      }
      const uint32_t code = uint32_t(Type::encode(row[from + lane], scale));
      const uint32_t low = join_lanes<kLow>(code);
      const uint32_t top = __ballot_sync(kFullWarp, int(code >> kLow & 1));
      uint32_t* words = (uint32_t*)(head + unsigned(at * dim + from) * kLow / 8);
      if (lane % (32 / kLow) == 0) words[lane * kLow / 32] = low;
      if (Type::kHasTop && lane == 0) *(uint32_t*)(head + top_at(at, dim, from)) = top;
    }
  }
  static __device__ __forceinline__ void store_scale(uint8_t* target, CodeScale scale, int dim) {
    *(uint16_t*)target = __half_as_ushort(__float2half_rn(scale.scale));
    if (Type::kHasMinimum)
      *(uint16_t*)(target + scale_bytes(dim)) = __half_as_ushort(__float2half_rn(scale.minimum));
  }
};

using KvQ5_1 = KvPacked<LevelsQ5_1>;
using KvQ5_0 = KvPacked<LevelsQ5_0>;
using KvQ4_0 = KvPacked<LevelsQ4_0>;
using KvIQ4_NL = KvPacked<LevelsIQ4_NL>;
using KvTURBO3 = KvPacked<LevelsTURBO3>;

}  // namespace sharpi
