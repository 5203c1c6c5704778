// Mamba-2: one task a sequence and head, its tokens in order, so that prefill and decode give the same bits.
#include <cmath>
#include <cstring>

#include "program.h"
#include "recurrent.h"

namespace sharpi {
namespace {

float softplus(float x) { return x > 20.f ? x : std::log1p(std::exp(x)); }

class Mamba2 : public Stage {
 public:
  Mamba2(const Mamba2Params& params, const Isa& isa)
      : p_(params), isa_(isa), stride_(round_to_vectors(params.head_dim)), inner_(params.heads * params.head_dim) {}
  int num_tasks(const Step& step) const override { return count_runs(step) * p_.heads; }

  void run(const Step& step, int task, int, Worker&) const override {
    const int head = task % p_.heads;
    const size_t floats = size_t(p_.state_size) * stride_;
    const Run run = find_run(step, task / p_.heads, p_.state_offset);
    float* state = run.state + head * floats;
    if (step.positions[run.begin] == 0) memset(state, 0, sizeof(float) * floats);
    for (int t = run.begin; t < run.end; t++) walk(t, head, state);
  }

 private:
  void walk(int token, int head, float* state) const {
    const int writes = p_.groups * p_.state_size, group = head * p_.groups / p_.heads * p_.state_size;
    const float* row = p_.xbc + size_t(token) * (inner_ + 2 * writes);
    const size_t gate = size_t(token) * p_.heads + head;
    const float dt = softplus(p_.dt[gate] + p_.dt_bias[head]);
    isa_.vectors->scan_step({state, row + inner_ + group, row + inner_ + writes + group, row + head * p_.head_dim,
                             p_.out + gate * p_.head_dim, p_.state_size, p_.head_dim, stride_,
                             std::exp(p_.a[head] * dt), dt, p_.d[head]});
  }

  const Mamba2Params p_;
  const Isa& isa_;
  const int stride_, inner_;
};

}  // namespace

void add_mamba2(Program& program, const Mamba2Params& p) { program.add<Mamba2>(p, program.isa); }

}  // namespace sharpi
