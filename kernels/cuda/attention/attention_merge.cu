// Merges the partial results of attention.cu, span by span in order, into floats and/or quantised
// rows.
//
// A block takes `set` heads of a token, as many as fill whole blocks of 32 columns.
#include "attention_merge.cuh"
#include "common/launch_order.cuh"

// positions: (T,); sinks, out, quantised: MergedHeads. Grid (num_heads / set, T).
KERNEL __launch_bounds__(256)
    attention_merge(float* scratch, const int* positions, const float* sinks, float* out,
                    uint8_t* quantised, int num_heads, int set, int max_spans, int value_dim,
                    int window, int is_chunked, int planes, int hadamard) {
  sharpi::wait_for_last_launch();
  using namespace sharpi;
  const int token = blockIdx.y;
  const int begin = first_visible(positions[token], window, is_chunked) / kSpan;
  const Partials partials(scratch, gridDim.y * num_heads, max_spans, value_dim);
  merge_heads(partials, {sinks, out, quantised, planes, hadamard}, token, num_heads,
              blockIdx.x * set, set, begin, positions[token] / kSpan + 1);
}
