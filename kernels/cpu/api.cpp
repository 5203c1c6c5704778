// The C surface of the library. Nothing here throws; failures come back as null or a negative
// number.
#include <cstdio>
#include <cstring>
#include <new>

#include "operations/ops.h"
#include "runtime/program.h"

#define SHARPI_API extern "C" __attribute__((visibility("default")))

using namespace sharpi;

namespace {

template <class Params>
int add(Program& program, const void* params, size_t bytes,
        void (*record)(Program&, const Params&)) {
  if (bytes != sizeof(Params)) return -1;
  Params p;
  memcpy(&p, params, sizeof p);
  record(program, p);
  return 0;
}

int add(Program& program, OpKind kind, const void* params, size_t bytes) {
  switch (kind) {
    case OpKind::Embed: return add(program, params, bytes, add_embed);
    case OpKind::RmsNorm: return add(program, params, bytes, add_rms_norm);
    case OpKind::Linear: return add(program, params, bytes, add_linear);
    case OpKind::RopeAngles: return add(program, params, bytes, add_rope_angles);
    case OpKind::Rope: return add(program, params, bytes, add_rope);
    case OpKind::KvStore: return add(program, params, bytes, add_kv_store);
    case OpKind::Attention: return add(program, params, bytes, add_attention);
    case OpKind::Choose: return add(program, params, bytes, add_choose);
    case OpKind::KvKeep: return add(program, params, bytes, add_kv_keep);
    case OpKind::Route: return add(program, params, bytes, add_route);
    case OpKind::Experts: return add(program, params, bytes, add_experts);
    case OpKind::AddScaled: return add(program, params, bytes, add_add_scaled);
    case OpKind::Gather: return add(program, params, bytes, add_gather);
    case OpKind::Unary: return add(program, params, bytes, add_unary);
    case OpKind::Acquire: return add(program, params, bytes, add_acquire);
    case OpKind::PredictRoutes: return add(program, params, bytes, add_predict_routes);
    case OpKind::LayerNorm: return add(program, params, bytes, add_layer_norm);
    case OpKind::HeadLinear: return add(program, params, bytes, add_head_linear);
    case OpKind::ScaleByPosition: return add(program, params, bytes, add_scale_by_position);
    case OpKind::GateHeads: return add(program, params, bytes, add_gate_heads);
    case OpKind::Join: return add(program, params, bytes, add_join);
    case OpKind::Part: return add(program, params, bytes, add_part);
    case OpKind::Convolution: return add(program, params, bytes, add_convolution);
    case OpKind::DeltaNet: return add(program, params, bytes, add_delta_net);
    case OpKind::Mamba2: return add(program, params, bytes, add_mamba2);
    case OpKind::Gated: return add(program, params, bytes, add_gated);
    case OpKind::Split: return add(program, params, bytes, add_split);
  }
  return -1;
}

}  // namespace

// Returns the name of the instruction set that would be used, or null where the machine cannot run
// the requested one.
SHARPI_API const char* sharpi_instruction_set(const char* name) {
  const Isa* isa = find_isa(name);
  return isa ? isa->name : nullptr;
}

// Writes the names of the CPU features that an instruction set needs and this machine lacks into
// `out`, up to `size` bytes; an empty string if none is missing. Returns -1 for a set that this
// library was not built with.
SHARPI_API int sharpi_missing_features(const char* name, char* out, size_t size) {
  const Isa* isa = named_isa(name);
  if (!isa) return -1;
  return snprintf(out, size, "%s", missing(isa->features).c_str());
}

// Creates threads at these places, or without places anywhere. Returns null where the system has no
// more threads or memory.
SHARPI_API void* sharpi_pool_create(int num_threads, const ThreadPlace* places) {
  if (num_threads < 1) return nullptr;
  try {
    return places ? new Pool({places, places + num_threads}) : new Pool(num_threads);
  } catch (const std::exception&) {
    return nullptr;
  }
}
SHARPI_API void sharpi_pool_destroy(void* pool) { delete static_cast<Pool*>(pool); }

// Ends the current run, or the next one, at the next layer, until it is called with 0. Any thread
// may call both.
SHARPI_API void sharpi_pool_interrupt(void* pool, int wanted) {
  static_cast<Pool*>(pool)->interrupt(wanted != 0);
}
// Returns the part of the current run that is done, 0 to 1.
SHARPI_API float sharpi_pool_progress(void* pool) { return static_cast<Pool*>(pool)->progress(); }

SHARPI_API void* sharpi_program_create(const char* isa_name, int max_tokens, int max_outputs,
                                       int max_positions) {
  const Isa* isa = find_isa(isa_name);
  return isa ? new (std::nothrow) Program(*isa, max_tokens, max_outputs, max_positions) : nullptr;
}
SHARPI_API void sharpi_program_destroy(void* program) { delete static_cast<Program*>(program); }

// Appends an operation. Returns -1 for an unknown kind or a struct of another size.
SHARPI_API int sharpi_program_add(void* program, int kind, const void* params, size_t bytes) {
  return add(*static_cast<Program*>(program), OpKind(kind), params, bytes);
}

// Gives a thread the same rows of every expert in every step, so that they can lie on its NUMA
// node. Comes before the operations.
SHARPI_API void sharpi_program_share_rows(void* program) {
  static_cast<Program*>(program)->shares_rows = true;
}

// Writes up to `capacity` pieces of weights with the nodes of the threads that read them. Returns
// their number.
SHARPI_API int64_t sharpi_program_page_spans(void* program, void* pool, PageSpan* out,
                                             int64_t capacity) {
  const auto spans = static_cast<Program*>(program)->page_spans(*static_cast<Pool*>(pool));
  for (size_t i = 0; i < spans.size() && int64_t(i) < capacity; i++) out[i] = spans[i];
  return int64_t(spans.size());
}

// Moves pages to a NUMA node. Returns 0 or the system's error number.
SHARPI_API int sharpi_place_pages(const void* data, size_t bytes, int node) {
  return place_pages(data, bytes, node);
}

// Allocates the memory that the operations share. Returns its bytes, or -1 when memory is short.
SHARPI_API int64_t sharpi_program_seal(void* program) {
  try {
    static_cast<Program*>(program)->seal();
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return int64_t(static_cast<Program*>(program)->scratch_bytes());
}

// Seals the program without memory of its own: it uses another program's. Returns -1 where that has
// too little.
SHARPI_API int sharpi_program_seal_within(void* program, void* other) {
  return static_cast<Program*>(program)->seal_within(*static_cast<Program*>(other)) ? 0 : -1;
}

// Runs the program once. Returns 0, or -1 when memory is short, or 1 where the pool was
// interrupted: there is no result then.
SHARPI_API int sharpi_program_run(void* program, void* pool, const Step* step, int num_threads) {
  try {
    return static_cast<Program*>(program)->run(*static_cast<Pool*>(pool), *step, num_threads) ? 0
                                                                                              : 1;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}
