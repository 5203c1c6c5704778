// The fields of the operations' parameters, which sharpi/ops/cpu/abi.py mirrors.
#include "ops.h"
#include "runtime/layouts.h"
#include "runtime/program.h"

#ifndef SHARPI_API
#define SHARPI_API extern "C" __attribute__((visibility("default")))
#endif

using namespace sharpi;

namespace {

using MatrixParams = Matrix;
using KvLayerParams = KvLayer;
using StackedMatrixParams = StackedMatrix;

const std::string kLayouts =
    SHARPI_LAYOUT(Step, num_tokens, num_outputs, ids, positions, sequences, output_rows, page_table,
                  pages_per_sequence, num_predicted, states, states_after, slots, num_kept,
                  kept_table) +
    SHARPI_LAYOUT(ThreadPlace, cores, num_cores, node, group, speed) +
    SHARPI_LAYOUT(PageSpan, at, bytes, node, reserved) +
    SHARPI_LAYOUT(EmbedParams, table, type, rows, columns, scale, out) +
    SHARPI_LAYOUT(RmsNormParams, x, weight, out, width, groups, weight_per_group, epsilon, rows) +
    SHARPI_LAYOUT(LayerNormParams, x, weight, bias, out, width, epsilon, rows, reserved) +
    SHARPI_LAYOUT(MatrixParams, data, type, rows, columns, reserved, bias, residual, out, scale,
                  weight_scale) +
    SHARPI_LAYOUT(LinearParams, x, num_matrices, precision, rows, reserved, matrices) +
    SHARPI_LAYOUT(RopeAnglesParams, frequencies, cosines, sines, half, scale) +
    SHARPI_LAYOUT(RopeParams, x, cosines, sines, heads, head_dim, half, interleaved) +
    SHARPI_LAYOUT(KvLayerParams, data, heads, key_dim, value_dim, value_stride, values_in_keys,
                  key_type, value_type, key_rotation, value_rotation, reserved) +
    SHARPI_LAYOUT(KvStoreParams, keys, values, cache, precision, reserved) +
    SHARPI_LAYOUT(AttentionParams, queries, out, cache, num_heads, window, scale, soft_cap,
                  is_chunked, precision, sinks) +
    SHARPI_LAYOUT(KvKeepParams, queries, cache, num_heads, precision, scale, soft_cap) +
    SHARPI_LAYOUT(RouteParams, logits, bias, ids, weights, num_experts, k, scoring, normalise,
                  scale, num_groups, groups_used, rows) +
    SHARPI_LAYOUT(AcquireParams, feed, ids, layer, k, rows, reserved) +
    SHARPI_LAYOUT(PredictRoutesParams, feed, logits, bias, layer, num_experts, k, reserved) +
    SHARPI_LAYOUT(StackedMatrixParams, data, bias, scales, type, rows, columns, first_row) +
    SHARPI_LAYOUT(ExpertsParams, x, ids, weights, residual, out, gate, up, down, num_experts, k,
                  activation, precision, scale, rows, feed, layer, weighs_input) +
    SHARPI_LAYOUT(HeadLinearParams, x, stacked, out, num_heads, precision) +
    SHARPI_LAYOUT(ScaleByPositionParams, x, width, interval, rate, offset) +
    SHARPI_LAYOUT(GateHeadsParams, gate, x, width, num_gates, activation, reserved) +
    SHARPI_LAYOUT(JoinParams, first, second, out, widths, groups, rows) +
    SHARPI_LAYOUT(PartParams, x, out, x_width, begin, width, rows) +
    SHARPI_LAYOUT(AddScaledParams, a, b, out, width, scale, rows, reserved) +
    SHARPI_LAYOUT(GatherParams, x, out, width, reserved) +
    SHARPI_LAYOUT(SigmoidParams, x, width, rows) +
    SHARPI_LAYOUT(SoftCapParams, x, width, rows, cap, reserved) +
    SHARPI_LAYOUT(GatedParams, gate, x, out, width, activation, rows, reserved) +
    SHARPI_LAYOUT(SplitParams, x, groups, num_parts, rows, reserved, widths, outs) +
    SHARPI_LAYOUT(ConvolutionParams, x, weight, bias, out, state_offset, channels, kernel, silu,
                  reserved) +
    SHARPI_LAYOUT(DeltaNetParams, qkv, beta, alpha, a, dt_bias, out, state_offset, key_heads,
                  value_heads, key_dim, value_dim, tiled, epsilon) +
    SHARPI_LAYOUT(Mamba2Params, xbc, dt, a, d, dt_bias, out, state_offset, heads, groups, head_dim,
                  state_size);

}  // namespace

SHARPI_API const char* sharpi_operation_layouts() { return kLayouts.c_str(); }
