// Passes the weights of a unit, as floats, to a Sink, which takes a column and the eight values (or
// two) that begin there. Float rows whose length is no multiple of eight are passed two values at a
// time.
#pragma once
#include "dot.cuh"

namespace sharpi {

template <class Type>
struct QuantisedValues : ExactDot<Type> {
  template <class Sink>
  static __device__ __forceinline__ void each(const typename Type::Unit& weights, int unit, int,
                                              const Sink& sink) {
#pragma unroll
    for (int g = 0; g < Type::kGroups; g++)
#pragma unroll
      for (int w = 0; w < Type::kWords; w += 2)
        sink.take(UnitLayout<Type>::column(unit, g) + 4 * w, four_weights<Type>(weights, g, w),
                  four_weights<Type>(weights, g, w + 1));
  }
};

template <class Type>
struct FloatValues : FloatDot<Type> {
  template <class Sink>
  static __device__ __forceinline__ void each(const FloatUnit& weights, int unit, int columns,
                                              const Sink& sink) {
    const float (&v)[8] = weights.values;
    if (columns % 8 == 0) {
      sink.take(8 * unit, make_float4(v[0], v[1], v[2], v[3]), make_float4(v[4], v[5], v[6], v[7]));
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (8 * unit + 2 * i < columns)
        sink.take(8 * unit + 2 * i, make_float2(v[2 * i], v[2 * i + 1]));
  }
};

}  // namespace sharpi
