// Mamba-2, one head at a time.
#include <algorithm>
#include <cmath>

#include "recurrent_heads.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

class Mamba2 : public RecurrentHeads {
 public:
  Mamba2(const Mamba2Params& params, const Isa& isa)
      : RecurrentHeads(params.heads, params.state_size, params.head_dim, params.state_offset),
        p_(params),
        isa_(isa),
        inner_(params.heads * params.head_dim) {}

 private:
  void walk(int first, int count, int head, float* state) const override {
    const int writes = p_.groups * p_.state_size,
              group = head * p_.groups / p_.heads * p_.state_size;
    float dt[kBlock], decay[kBlock];
    for (int i = 0; i < count; i++) {
      dt[i] = softplus(p_.dt[size_t(first + i) * p_.heads + head] + p_.dt_bias[head]);
      decay[i] = std::exp(p_.a[head] * dt[i]);
    }
    for (int column = 0; column < p_.head_dim; column += kStatePanel)
      for (int i = 0; i < count; i++) {
        const float* row = p_.xbc + size_t(first + i) * (inner_ + 2 * writes);
        const int at = head * p_.head_dim + column;
        isa_.vectors->scan_step(
            {state + column * p_.state_size, row + inner_ + group, row + inner_ + writes + group,
             row + at, p_.out + size_t(first + i) * inner_ + at, p_.state_size,
             std::min(kStatePanel, p_.head_dim - column), decay[i], dt[i], p_.d[head]});
      }
  }

  const Mamba2Params p_;
  const Isa& isa_;
  const int inner_;
};

}  // namespace

void add_mamba2(Program& program, const Mamba2Params& p) { program.add<Mamba2>(p, program.isa); }

}  // namespace sharpi
