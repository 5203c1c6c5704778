// Gated delta net: one task a sequence and value head, its tokens in order, so that prefill and decode give the same bits.
#include <cmath>
#include <cstring>

#include "program.h"
#include "recurrent.h"

namespace sharpi {
namespace {

constexpr int kMaxKeys = 1024;

float softplus(float x) { return x > 20.f ? x : std::log1p(std::exp(x)); }

class DeltaNet : public Stage {
 public:
  DeltaNet(const DeltaNetParams& params, const Isa& isa)
      : p_(params), isa_(isa), stride_(round_to_vectors(params.value_dim)), keys_(params.key_heads * params.key_dim) {}
  int num_tasks(const Step& step) const override { return count_runs(step) * p_.value_heads; }

  void run(const Step& step, int task, int, Worker&) const override {
    const int head = task % p_.value_heads;
    const size_t floats = size_t(p_.key_dim) * stride_;
    const Run run = find_run(step, task / p_.value_heads, p_.state_offset);
    float* state = run.state + head * floats;
    if (step.positions[run.begin] == 0) memset(state, 0, sizeof(float) * floats);
    for (int t = run.begin; t < run.end; t++) walk(t, head, state);
  }

 private:
  void walk(int token, int head, float* state) const {
    alignas(64) float query[kMaxKeys], key[kMaxKeys];
    const float* row = p_.qkv + size_t(token) * (2 * keys_ + p_.value_heads * p_.value_dim);
    const int at = key_head(head) * p_.key_dim;
    isa_.vectors->unit_length(row + at, query, p_.key_dim, p_.epsilon, 1.f / std::sqrt(float(p_.key_dim)));
    isa_.vectors->unit_length(row + keys_ + at, key, p_.key_dim, p_.epsilon, 1.f);
    const size_t gate = size_t(token) * p_.value_heads + head;
    isa_.vectors->delta_step({state, query, key, row + 2 * keys_ + head * p_.value_dim, p_.out + gate * p_.value_dim,
                              p_.key_dim, p_.value_dim, stride_,
                              std::exp(p_.a[head] * softplus(p_.alpha[gate] + p_.dt_bias[head])),
                              1.f / (1.f + std::exp(-p_.beta[gate]))});
  }
  int key_head(int head) const {
    return p_.tiled ? head % p_.key_heads : head * p_.key_heads / p_.value_heads;
  }

  const DeltaNetParams p_;
  const Isa& isa_;
  const int stride_, keys_;
};

}  // namespace

void add_delta_net(Program& program, const DeltaNetParams& p) { program.add<DeltaNet>(p, program.isa); }

}  // namespace sharpi
