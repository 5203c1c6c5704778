// Gated delta net, one value head at a time.
//
// Turning chunks of tokens into matrix products would not be faster here: a token then still needs
// three products for each value of the state, instead of four, and those within the chunk.
#include <algorithm>
#include <cmath>

#include "recurrent_heads.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

constexpr int kMaxKeys = 256;

class DeltaNet : public RecurrentHeads {
 public:
  DeltaNet(const DeltaNetParams& params, const Isa& isa)
      : RecurrentHeads(params.value_heads, params.key_dim, params.value_dim, params.state_offset),
        p_(params),
        isa_(isa),
        keys_(params.key_heads * params.key_dim) {}

 private:
  struct Token {
    alignas(64) float query[kMaxKeys], key[kMaxKeys], decays[kMaxKeys], recall[kMaxKeys];
    float decay, beta;
  };

  void walk(int first, int count, int head, float* state) const override {
    Token tokens[kBlock];
    for (int i = 0; i < count; i++) prepare(first + i, head, tokens[i]);
    for (int column = 0; column < p_.value_dim; column += kStatePanel)
      for (int i = 0; i < count; i++) {
        const size_t token = first + i;
        const float* value = p_.qkv + token * width() + 2 * keys_ + head * p_.value_dim;
        float* out = p_.out + (token * p_.value_heads + head) * p_.value_dim;
        isa_.vectors->delta_step({state + column * p_.key_dim, tokens[i].query, tokens[i].key,
                                  value + column, out + column, p_.key_dim,
                                  std::min(kStatePanel, p_.value_dim - column), tokens[i].decay,
                                  tokens[i].beta, p_.by_key ? tokens[i].decays : nullptr,
                                  tokens[i].recall});
      }
  }

  void prepare(int token, int head, Token& out) const {
    const float* row = p_.qkv + size_t(token) * width() + key_head(head) * p_.key_dim;
    isa_.vectors->unit_length(row, out.query, p_.key_dim, p_.epsilon,
                              1.f / std::sqrt(float(p_.key_dim)));
    isa_.vectors->unit_length(row + keys_, out.key, p_.key_dim, p_.epsilon, 1.f);
    const size_t gate = size_t(token) * p_.value_heads + head;
    out.beta = 1.f / (1.f + std::exp(-p_.beta[gate]));
    if (!p_.by_key) {
      out.decay = decay(p_.a[head], p_.alpha[gate] + p_.dt_bias[head]);
      return;
    }
    const float *alpha = p_.alpha + gate * p_.key_dim, *bias = p_.dt_bias + head * p_.key_dim;
    for (int k = 0; k < p_.key_dim; k++) {
      out.decays[k] = decay(p_.a[head], alpha[k] + bias[k]);
      out.recall[k] = out.decays[k] * out.key[k];
    }
  }
  float decay(float a, float x) const {
    if (p_.floor < 0.f) return std::exp(p_.floor / (1.f + std::exp(a * x)));
    return std::exp(a * softplus(x));
  }
  size_t width() const { return 2 * keys_ + p_.value_heads * p_.value_dim; }
  int key_head(int head) const {
    return p_.tiled ? head % p_.key_heads : head * p_.key_heads / p_.value_heads;
  }

  const DeltaNetParams p_;
  const Isa& isa_;
  const int keys_;
};

}  // namespace

void add_delta_net(Program& program, const DeltaNetParams& p) {
  program.add<DeltaNet>(p, program.isa);
}

}  // namespace sharpi
