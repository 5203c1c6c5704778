// The kernels of AVX-VNNI in AVX-512's encoding: the same instruction, where a processor has no
// other. Functions for ctypes.
#include "matmul/matmul_avx_vnni.cpp"

namespace sharpi {

// What these kernels leave to others, which is not tested here.
constinit const MatmulKernels kAvx2Matmul{}, kPortableMatmul{};

}  // namespace sharpi

// Multiplies at most 32 rows with tokens of `blocks` activation blocks each to out (tokens, 32).
extern "C" __attribute__((visibility("default"))) int multiply(
    int type, const uint8_t* rows, int row_bytes, int num_rows, int columns,
    const sharpi::Activation* tokens, int blocks, int num_tokens, float* out) {
  using namespace sharpi;
  const ProductFn function = product(QuantType(type), Precision::Int8);
  if (!function || num_tokens > 64) return 1;
  const void* pointers[64];
  for (int i = 0; i < num_tokens; i++) pointers[i] = tokens + i * blocks;
  function({rows, size_t(row_bytes), num_rows, columns, pointers, num_tokens, out, nullptr});
  return 0;
}
