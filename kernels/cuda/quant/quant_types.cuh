// The types that kernels are instantiated for: QUANTISED_TYPES(M) and FLOAT_TYPES(M) expand to
// M(Q4_K, q4_k) for each. -DONLY_<TYPE> limits them to one type, so that a process compiles only
// what it runs. Both macros may come from the compiler's options instead, for several types.
#pragma once
#include "blocks_of_few_bits.cuh"
#include "blocks_of_grids.cuh"
#include "float_types.cuh"

#if defined(QUANTISED_TYPES) && defined(FLOAT_TYPES)
#elif defined(ONLY_Q4_0)
#define QUANTISED_TYPES(M) M(Q4_0, q4_0)
#define FLOAT_TYPES(M)
#elif defined(ONLY_Q4_1)
#define QUANTISED_TYPES(M) M(Q4_1, q4_1)
#define FLOAT_TYPES(M)
#elif defined(ONLY_Q5_0)
#define QUANTISED_TYPES(M) M(Q5_0, q5_0)
#define FLOAT_TYPES(M)
#elif defined(ONLY_Q5_1)
#define QUANTISED_TYPES(M) M(Q5_1, q5_1)
#define FLOAT_TYPES(M)
#elif defined(ONLY_Q8_0)
#define QUANTISED_TYPES(M) M(Q8_0, q8_0)
#define FLOAT_TYPES(M)
#elif defined(ONLY_Q2_K)
#define QUANTISED_TYPES(M) M(Q2_K, q2_k)
#define FLOAT_TYPES(M)
#elif defined(ONLY_Q3_K)
#define QUANTISED_TYPES(M) M(Q3_K, q3_k)
#define FLOAT_TYPES(M)
#elif defined(ONLY_Q4_K)
#define QUANTISED_TYPES(M) M(Q4_K, q4_k)
#define FLOAT_TYPES(M)
#elif defined(ONLY_Q5_K)
#define QUANTISED_TYPES(M) M(Q5_K, q5_k)
#define FLOAT_TYPES(M)
#elif defined(ONLY_Q6_K)
#define QUANTISED_TYPES(M) M(Q6_K, q6_k)
#define FLOAT_TYPES(M)
#elif defined(ONLY_IQ4_NL)
#define QUANTISED_TYPES(M) M(IQ4_NL, iq4_nl)
#define FLOAT_TYPES(M)
#elif defined(ONLY_IQ4_XS)
#define QUANTISED_TYPES(M) M(IQ4_XS, iq4_xs)
#define FLOAT_TYPES(M)
#elif defined(ONLY_MXFP4)
#define QUANTISED_TYPES(M) M(MXFP4, mxfp4)
#define FLOAT_TYPES(M)
#elif defined(ONLY_IQ2_XXS)
#define QUANTISED_TYPES(M) M(IQ2_XXS, iq2_xxs)
#define FLOAT_TYPES(M)
#elif defined(ONLY_IQ2_XS)
#define QUANTISED_TYPES(M) M(IQ2_XS, iq2_xs)
#define FLOAT_TYPES(M)
#elif defined(ONLY_IQ2_S)
#define QUANTISED_TYPES(M) M(IQ2_S, iq2_s)
#define FLOAT_TYPES(M)
#elif defined(ONLY_IQ3_XXS)
#define QUANTISED_TYPES(M) M(IQ3_XXS, iq3_xxs)
#define FLOAT_TYPES(M)
#elif defined(ONLY_IQ3_S)
#define QUANTISED_TYPES(M) M(IQ3_S, iq3_s)
#define FLOAT_TYPES(M)
#elif defined(ONLY_IQ1_S)
#define QUANTISED_TYPES(M) M(IQ1_S, iq1_s)
#define FLOAT_TYPES(M)
#elif defined(ONLY_IQ1_M)
#define QUANTISED_TYPES(M) M(IQ1_M, iq1_m)
#define FLOAT_TYPES(M)
#elif defined(ONLY_TQ1_0)
#define QUANTISED_TYPES(M) M(TQ1_0, tq1_0)
#define FLOAT_TYPES(M)
#elif defined(ONLY_TQ2_0)
#define QUANTISED_TYPES(M) M(TQ2_0, tq2_0)
#define FLOAT_TYPES(M)
#elif defined(ONLY_NVFP4)
#define QUANTISED_TYPES(M) M(NVFP4, nvfp4)
#define FLOAT_TYPES(M)
#elif defined(ONLY_Q1_0)
#define QUANTISED_TYPES(M) M(Q1_0, q1_0)
#define FLOAT_TYPES(M)
#elif defined(ONLY_Q2_0)
#define QUANTISED_TYPES(M) M(Q2_0, q2_0)
#define FLOAT_TYPES(M)
#elif defined(ONLY_F32)
#define QUANTISED_TYPES(M)
#define FLOAT_TYPES(M) M(F32, f32)
#elif defined(ONLY_F16)
#define QUANTISED_TYPES(M)
#define FLOAT_TYPES(M) M(F16, f16)
#elif defined(ONLY_BF16)
#define QUANTISED_TYPES(M)
#define FLOAT_TYPES(M) M(BF16, bf16)
#else
#define QUANTISED_TYPES(M) \
  M(Q4_0, q4_0)            \
  M(Q4_1, q4_1)            \
  M(Q5_0, q5_0)            \
  M(Q5_1, q5_1)            \
  M(Q8_0, q8_0)            \
  M(Q2_K, q2_k)            \
  M(Q3_K, q3_k)            \
  M(Q4_K, q4_k)            \
  M(Q5_K, q5_k)            \
  M(Q6_K, q6_k)            \
  M(IQ4_NL, iq4_nl)        \
  M(IQ4_XS, iq4_xs)        \
  M(MXFP4, mxfp4)          \
  M(IQ2_XXS, iq2_xxs)      \
  M(IQ2_XS, iq2_xs)        \
  M(IQ2_S, iq2_s)          \
  M(IQ3_XXS, iq3_xxs)      \
  M(IQ3_S, iq3_s)          \
  M(IQ1_S, iq1_s)          \
  M(IQ1_M, iq1_m) M(TQ1_0, tq1_0) M(TQ2_0, tq2_0) M(NVFP4, nvfp4) M(Q1_0, q1_0) M(Q2_0, q2_0)
#define FLOAT_TYPES(M) M(F32, f32) M(F16, f16) M(BF16, bf16)
#endif
