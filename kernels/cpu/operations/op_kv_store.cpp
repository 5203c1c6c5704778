// Stores the keys and values of a step's tokens in the pages of the KV cache.
#include <vector>

#include "attention/kv_layout.h"
#include "attention/token_blocks.h"
#include "ops.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

// A task stores one KV head's tokens of one page, because positions may share bytes.
class KvStore : public Stage {
 public:
  KvStore(const KvStoreParams& params, const Isa& isa)
      : p_(params),
        vectors_(*isa.vectors),
        store_key_(params.cache.in_rows ? vectors_.values[kv_layout(KvType::F16, false)].store
                                        : key_ops(params.cache, params.precision, vectors_).store),
        values_(value_ops(params.cache, params.precision, vectors_)) {}
  int num_tasks(const Step& step) const override { return count_page_runs(step) * p_.cache.heads; }

  void run(const Step& step, int task, int, Worker&) const override {
    const KvLayer& c = p_.cache;
    const int head = task % c.heads;
    const TokenBlock tokens = find_page_run(step, task / c.heads);
    for (int token = tokens.begin; token < tokens.end; token++) {
      const int position = step.slot(token), at = position % kPage;
      const PageView view = page_of(c, step.page_at(token, position), head);
      const size_t row = size_t(token) * c.heads + head;
      store_key_(rotated(p_.keys + row * c.key_dim, c.key_dim, c.key_rotation), c.key_dim, at,
                 view.keys);
      if (c.values_in_keys) continue;
      values_.store(rotated(p_.values + row * c.value_dim, c.value_dim, c.value_rotation),
                    c.value_dim, at, view.values);
    }
  }

 private:
  // Returns a row, or its transform, which is valid until the thread's next call.
  const float* rotated(const float* row, int dim, int block) const {
    if (!block) return row;
    thread_local std::vector<float> memory;
    memory.resize(size_t(dim));
    vectors_.rotate(row, memory.data(), dim, block);
    return memory.data();
  }

  const KvStoreParams p_;
  const VectorOps& vectors_;
  void (*const store_key_)(const float* key, int dim, int at, uint8_t* keys);
  const ValueOps& values_;
};

}  // namespace

void add_kv_store(Program& program, const KvStoreParams& p) {
  program.add<KvStore>(p, program.isa);
}

}  // namespace sharpi
