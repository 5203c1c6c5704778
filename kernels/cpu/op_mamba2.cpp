// Mamba-2: one task a sequence and head, its tokens in order, so that prefill and decode give the same bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "program.h"
#include "recurrent.h"

namespace sharpi {
namespace {

constexpr int kBlock = 8;  // tokens that meet a panel of the state while it is in the cache

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
    for (int t = run.begin; t < run.end; t += kBlock) walk(t, std::min(kBlock, run.end - t), head, state);
  }

 private:
  void walk(int first, int count, int head, float* state) const {
    const int writes = p_.groups * p_.state_size, group = head * p_.groups / p_.heads * p_.state_size;
    float dt[kBlock], decay[kBlock];
    for (int i = 0; i < count; i++) {
      dt[i] = softplus(p_.dt[size_t(first + i) * p_.heads + head] + p_.dt_bias[head]);
      decay[i] = std::exp(p_.a[head] * dt[i]);
    }
    for (int column = 0; column < p_.head_dim; column += kStatePanel)
      for (int i = 0; i < count; i++) {
        const float* row = p_.xbc + size_t(first + i) * (inner_ + 2 * writes);
        const int at = head * p_.head_dim + column;
        isa_.vectors->scan_step({state + column * p_.state_size, row + inner_ + group, row + inner_ + writes + group,
                                 row + at, p_.out + size_t(first + i) * inner_ + at, p_.state_size,
                                 std::min(kStatePanel, p_.head_dim - column), decay[i], dt[i], p_.d[head]});
      }
  }

  const Mamba2Params p_;
  const Isa& isa_;
  const int stride_, inner_;
};

}  // namespace

void add_mamba2(Program& program, const Mamba2Params& p) { program.add<Mamba2>(p, program.isa); }

}  // namespace sharpi
