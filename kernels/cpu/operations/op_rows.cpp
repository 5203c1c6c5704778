// Operations that treat each row of the step on its own: one task per row.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

template <class Params>
class RowStage : public Stage {
 public:
  RowStage(const Params& params, const Isa& isa, Rows rows) : p_(params), isa_(isa), rows_(rows) {}
  int num_tasks(const Step& step) const override { return count_rows(rows_, step); }

 protected:
  const Params p_;
  const Isa& isa_;
  const Rows rows_;
};

struct Embed : RowStage<EmbedParams> {
  using RowStage::RowStage;
  void run(const Step& step, int row, int, Worker&) const override {
    const auto type = QuantType(p_.type);
    const size_t row_bytes = size_t(p_.columns) / block_values(type) * block_bytes(type);
    float* out = p_.out + size_t(row) * p_.columns;
    isa_.matmul->dequantise(type, p_.table + step.ids[row] * row_bytes, p_.columns, out);
    if (p_.scale != 1.f) isa_.vectors->add_scaled(nullptr, out, p_.scale, out, p_.columns);
  }
};

struct RmsNorm : RowStage<RmsNormParams> {
  using RowStage::RowStage;
  void run(const Step&, int row, int, Worker&) const override {
    for (int g = 0; g < p_.groups; g++) {
      const size_t at = (size_t(row) * p_.groups + g) * p_.width;
      const float* weight = p_.weight + (p_.weight_per_group ? size_t(g) * p_.width : 0);
      isa_.vectors->rms_norm(p_.x + at, weight, p_.out + at, p_.width, p_.epsilon);
    }
  }
};

struct LayerNorm : RowStage<LayerNormParams> {
  using RowStage::RowStage;
  void run(const Step&, int row, int, Worker&) const override {
    const float* x = p_.x + size_t(row) * p_.width;
    float* out = p_.out + size_t(row) * p_.width;
    double sum = 0, squares = 0;
    for (int i = 0; i < p_.width; i++) sum += x[i];
    const double mean = sum / p_.width;
    for (int i = 0; i < p_.width; i++) squares += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.f / std::sqrt(float(squares / p_.width) + p_.epsilon);
    for (int i = 0; i < p_.width; i++)
      out[i] = (x[i] - float(mean)) * scale * p_.weight[i] + p_.bias[i];
  }
};

struct ScaleByPosition : RowStage<ScaleByPositionParams> {
  using RowStage::RowStage;
  void run(const Step& step, int row, int, Worker&) const override {
    float* x = p_.x + size_t(row) * p_.width;
    const float passed = float((step.positions[row] + p_.offset) / p_.interval);
    isa_.vectors->add_scaled(nullptr, x, 1.f + p_.rate * std::log1p(passed), x, p_.width);
  }
};

struct GateHeads : RowStage<GateHeadsParams> {
  using RowStage::RowStage;
  void run(const Step&, int row, int, Worker&) const override {
    const int span = p_.width / p_.num_gates;
    const float* gate = p_.gate + size_t(row) * p_.num_gates;
    float* x = p_.x + size_t(row) * p_.width;
    for (int i = 0; i < p_.num_gates; i++, x += span)
      isa_.vectors->add_scaled(nullptr, x, activated(gate[i]), x, span);
  }

 private:
  float activated(float gate) const {
    if (p_.activation == HeadGate::Sigmoid) return 1.f / (1.f + std::exp(-gate));
    return std::max(gate, 0.f) + std::log1p(std::exp(-std::abs(gate)));
  }
};

struct RopeAngles : RowStage<RopeAnglesParams> {
  using RowStage::RowStage;
  void run(const Step& step, int row, int, Worker&) const override {
    const float position = float(step.positions[row]);
    for (int i = 0; i < p_.half; i++) {
      const float angle = position * p_.frequencies[i];
      p_.cosines[size_t(row) * p_.half + i] = std::cos(angle) * p_.scale;
      p_.sines[size_t(row) * p_.half + i] = std::sin(angle) * p_.scale;
    }
  }
};

struct Rope : RowStage<RopeParams> {
  using RowStage::RowStage;
  void run(const Step&, int row, int, Worker&) const override {
    const float *cosines = p_.cosines + size_t(row) * p_.half,
                *sines = p_.sines + size_t(row) * p_.half;
    float* head = p_.x + size_t(row) * p_.heads * p_.head_dim;
    for (int h = 0; h < p_.heads; h++, head += p_.head_dim)
      isa_.vectors->rope(head, cosines, sines, p_.half, p_.interleaved);
  }
};

struct AddScaled : RowStage<AddScaledParams> {
  using RowStage::RowStage;
  void run(const Step&, int row, int, Worker&) const override {
    const size_t at = size_t(row) * p_.width;
    isa_.vectors->add_scaled(p_.a ? p_.a + at : nullptr, p_.b + at, p_.scale, p_.out + at,
                             p_.width);
  }
};

struct Gather : RowStage<GatherParams> {
  using RowStage::RowStage;
  void run(const Step& step, int row, int, Worker&) const override {
    const float* from = p_.x + size_t(step.output_rows[row]) * p_.width;
    memcpy(p_.out + size_t(row) * p_.width, from, sizeof(float) * p_.width);
  }
};

struct Gated : RowStage<GatedParams> {
  using RowStage::RowStage;
  void run(const Step&, int row, int, Worker&) const override {
    const size_t at = size_t(row) * p_.width;
    isa_.vectors->gated(Activate(p_.activation), p_.gate + at, p_.x + at, p_.out + at, p_.width);
  }
};

struct Split : RowStage<SplitParams> {
  using RowStage::RowStage;
  void run(const Step&, int row, int, Worker&) const override {
    int width = 0;
    for (int i = 0; i < p_.num_parts; i++) width += p_.widths[i];
    const float* from = p_.x + size_t(row) * p_.groups * width;
    for (int g = 0; g < p_.groups; g++)
      for (int i = 0; i < p_.num_parts; from += p_.widths[i++])
        memcpy(p_.outs[i] + (size_t(row) * p_.groups + g) * p_.widths[i], from,
               sizeof(float) * p_.widths[i]);
  }
};

struct Join : RowStage<JoinParams> {
  using RowStage::RowStage;
  void run(const Step&, int row, int, Worker&) const override {
    const int a = p_.widths[0], b = p_.widths[1];
    for (size_t run = size_t(row) * p_.groups; run < size_t(row + 1) * p_.groups; run++) {
      memcpy(p_.out + run * (a + b), p_.first + run * a, sizeof(float) * a);
      memcpy(p_.out + run * (a + b) + a, p_.second + run * b, sizeof(float) * b);
    }
  }
};

struct Part : RowStage<PartParams> {
  using RowStage::RowStage;
  void run(const Step&, int row, int, Worker&) const override {
    const float* from = p_.x + size_t(row) * p_.x_width + p_.begin;
    memcpy(p_.out + size_t(row) * p_.width, from, sizeof(float) * p_.width);
  }
};

struct UnaryOp : RowStage<UnaryParams> {
  using RowStage::RowStage;
  void run(const Step&, int row, int, Worker&) const override {
    float* x = p_.x + size_t(row) * p_.width;
    for (int i = 0; i < p_.width; i++) x[i] = of(x[i]);
  }

 private:
  float of(float x) const {
    switch (p_.function) {
      case Unary::Sigmoid: return 1.f / (1.f + std::exp(-x));
      case Unary::SoftCap: return p_.a * std::tanh(x / p_.a);
      case Unary::Clamp: return std::min(std::max(x, -p_.a), p_.a);
      default: break;
    }
    if (x > 0.f) return p_.a * x * x + p_.c * x;
    return (std::expm1(std::min(x, p_.d)) - x) * p_.b + p_.c * x;
  }
};

}  // namespace

void add_embed(Program& program, const EmbedParams& p) {
  program.add<Embed>(p, program.isa, Rows::Tokens);
}
void add_rms_norm(Program& program, const RmsNormParams& p) {
  program.add<RmsNorm>(p, program.isa, Rows(p.rows));
}
void add_layer_norm(Program& program, const LayerNormParams& p) {
  program.add<LayerNorm>(p, program.isa, Rows(p.rows));
}
void add_scale_by_position(Program& program, const ScaleByPositionParams& p) {
  program.add<ScaleByPosition>(p, program.isa, Rows::Tokens);
}

void add_gate_heads(Program& program, const GateHeadsParams& p) {
  program.add<GateHeads>(p, program.isa, Rows::Tokens);
}
void add_rope_angles(Program& program, const RopeAnglesParams& p) {
  program.add<RopeAngles>(p, program.isa, Rows::Tokens);
}
void add_rope(Program& program, const RopeParams& p) {
  program.add<Rope>(p, program.isa, Rows::Tokens);
}
void add_add_scaled(Program& program, const AddScaledParams& p) {
  program.add<AddScaled>(p, program.isa, Rows(p.rows));
}
void add_gather(Program& program, const GatherParams& p) {
  program.add<Gather>(p, program.isa, Rows::Outputs);
}
void add_gated(Program& program, const GatedParams& p) {
  program.add<Gated>(p, program.isa, Rows(p.rows));
}
void add_split(Program& program, const SplitParams& p) {
  program.add<Split>(p, program.isa, Rows(p.rows));
}
void add_join(Program& program, const JoinParams& p) {
  program.add<Join>(p, program.isa, Rows(p.rows));
}
void add_part(Program& program, const PartParams& p) {
  program.add<Part>(p, program.isa, Rows(p.rows));
}
void add_unary(Program& program, const UnaryParams& p) {
  program.add<UnaryOp>(p, program.isa, Rows(p.rows));
}

}  // namespace sharpi
