// Stores the keys and values of a step's tokens in the pages of the KV cache.
#include "attention/kv_layout.h"
#include "ops.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

class KvStore : public Stage {
 public:
  KvStore(const KvStoreParams& params, const Isa& isa)
      : p_(params), kv_(kv_ops(params.cache, params.precision, *isa.vectors)) {}
  int num_tasks(const Step& step) const override { return step.num_tokens; }

  void run(const Step& step, int token, int, Worker&) const override {
    const KvLayer& c = p_.cache;
    const int at = step.positions[token] % kPage, page = step.page_at(token, step.positions[token]);
    for (int h = 0; h < c.heads; h++) {
      const PageView view = page_of(c, page, h);
      kv_.store_key(p_.keys + (size_t(token) * c.heads + h) * c.key_dim, c.key_dim, at, view.keys);
      if (c.values_in_keys) continue;
      kv_.store_value(p_.values + (size_t(token) * c.heads + h) * c.value_dim, c.value_dim, at,
                      view.values);
    }
  }

 private:
  const KvStoreParams p_;
  const KvOps& kv_;
};

}  // namespace

void add_kv_store(Program& program, const KvStoreParams& p) {
  program.add<KvStore>(p, program.isa);
}

}  // namespace sharpi
