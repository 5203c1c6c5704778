#include "expert_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sharpi {
namespace {

constexpr int kSpins = 200;  // about 10 us; the reading threads need the CPU as well

void pause_thread() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::vector<std::unique_ptr<StoreLayer>> make_layers(const std::vector<LayerLayout>& layouts) {
  std::vector<std::unique_ptr<StoreLayer>> layers;
  for (size_t i = 0; i < layouts.size(); i++)
    layers.push_back(std::make_unique<StoreLayer>(layouts[i], int(i)));
  return layers;
}

LoadState state_of(const Entry& entry) { return entry.state.load(std::memory_order_acquire); }

}  // namespace

ExpertStore::ExpertStore(const StoreSettings& settings, SlotPolicy& policy)
    : layers_(make_layers(settings.layers)),
      buffers_(layers_, settings.num_staging),
      policy_(policy),
      counts_(layers_.size()),
      fills_(layers_.size()),
      uses_(layers_.size()),
      stalls_(layers_.size()),
      reader_(settings.reader) {
  for (size_t i = 0; i < layers_.size(); i++) uses_[i].resize(layers_[i]->num_experts());
}

void ExpertStore::start() {
  std::lock_guard guard(lock_);
  swaps_.clear();
  policy_.start(swaps_);
  for (const Swap& swap : swaps_) {
    give_slot(swap);
    fills_[swap.layer]++;
    demand(entry(swap.layer, swap.expert));
  }
}

void ExpertStore::acquire(int layer, const int32_t* routes, int tokens, int k, bool is_batch,
                          Phase phase, const std::vector<int8_t>& requested) {
  std::lock_guard guard(lock_);
  swaps_.clear();
  phase_ = phase;
  distinct_.assign(routes, routes + size_t(tokens) * k);
  if (!requested.empty()) std::erase_if(distinct_, [&](int32_t e) { return requested[e] >= 0; });
  const int count = int(distinct_.size());
  if (!is_batch) use_each(layer, routes, tokens, k, requested);
  else if (requested.empty()) policy_.use_batch(layer, routes, tokens, k, swaps_);
  else if (count) policy_.use_batch(layer, distinct_.data(), count, 1, swaps_);
  for (int32_t expert : distinct_) uses_[layer][expert]++;
  std::sort(distinct_.begin(), distinct_.end());
  distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
  apply(swaps_, layer);
  for (int32_t expert : distinct_) acquire_entry(entry(layer, expert));
  start_waiting();
}

// Looks up the tokens one after the other; each distinct expert is one access.
void ExpertStore::use_each(int layer, const int32_t* routes, int tokens, int k,
                           const std::vector<int8_t>& requested) {
  std::vector<int32_t> fresh;
  for (const int32_t* token = routes; token < routes + size_t(tokens) * k; token += k) {
    fresh.clear();
    for (int i = 0; i < k; i++)
      if (std::find(routes, token, token[i]) == token &&
          (requested.empty() || requested[token[i]] < 0))
        fresh.push_back(token[i]);
    if (!fresh.empty()) policy_.use(layer, fresh.data(), int(fresh.size()), swaps_);
  }
}

// Carries out swaps. Slots change hands at once; an expert of another layer is read when no thread
// waits for other reads.
void ExpertStore::apply(const std::vector<Swap>& swaps, int layer_in_use) {
  reader_.expect(orders(bind_all(swaps, layer_in_use)));
}

// Gives slots to experts; returns those that have to be read and that no thread needs now.
std::vector<Entry*> ExpertStore::bind_all(const std::vector<Swap>& swaps, int layer_in_use) {
  std::vector<Entry*> early;
  for (const Swap& swap : swaps) {
    give_slot(swap);
    Entry& e = entry(swap.layer, swap.expert);
    const bool used_now = swap.layer == layer_in_use &&
                          std::binary_search(distinct_.begin(), distinct_.end(), swap.expert);
    const bool is_new = std::find(early.begin(), early.end(), &e) == early.end();
    if (!used_now && is_new) early.push_back(&e);
  }
  std::erase_if(early, [](Entry* e) { return !e->buffer || state_of(*e) != LoadState::Absent; });
  return early;
}

// Carries out the swaps of a warm pin, whose experts were neither predicted nor missed.
void ExpertStore::fill(const std::vector<Swap>& swaps) {
  std::vector<LoadOrder> batch;
  for (Entry* e : bind_all(swaps, -1)) {
    fills_[e->layer]++;
    batch.push_back(layers_[e->layer]->order(*e));
  }
  reader_.expect(batch);
}

void ExpertStore::give_slot(const Swap& swap) {
  if (swap.victim >= 0) {
    Entry& victim = entry(swap.layer, swap.victim);
    Buffer* slot = victim.buffer;
    vacate(victim);
    buffers_.give_slot(swap.layer, slot);
  }
  Entry& e = entry(swap.layer, swap.expert);
  Buffer* slot = buffers_.take_slot(swap.layer);
  if (e.buffer) move_into(e, slot);
  else layers_[swap.layer]->bind(e, *slot);
}

// Gives a slot to an expert that is in a staging buffer, or is being read into one. Where the two
// buffers have the same size they exchange roles; otherwise the bytes are copied.
void ExpertStore::move_into(Entry& entry, Buffer* slot) {
  StoreLayer& layer = *layers_[entry.layer];
  Buffer* staging = entry.buffer;
  if (staging->bytes == slot->bytes) {
    buffers_.exchange(staging, slot);
    return;
  }
  if (state_of(entry) == LoadState::Loading) {
    reader_.promote(entry);
    entry.state.wait(LoadState::Loading, std::memory_order_acquire);
  }
  memcpy(slot->data, staging->data, layer.slot_bytes());
  layer.unbind(entry);
  layer.bind(entry, *slot);
}

void ExpertStore::acquire_entry(Entry& entry) {
  StoreCounts& counts = counting(entry.layer);
  counts.accesses++;
  entry.is_acquired = true;
  const bool was_early = std::exchange(entry.is_early, false);
  const LoadState state = state_of(entry);
  const bool is_in_flight = state == LoadState::Loading && reader_.promote(entry);
  counts.hits += state == LoadState::Ready;
  counts.late += is_in_flight;
  if (state == LoadState::Ready || is_in_flight) {
    counts.prefetch_used += was_early;
    return;
  }
  counts.loads++, counts.loaded_bytes += layers_[entry.layer]->expert_bytes();
  if (entry.buffer) {
    // a prefetch, part of which was dropped
    if (state == LoadState::Loading) reader_.cancel(entry);
    demand(entry);
  } else {
    entry.is_waiting = true;
    entry.state.store(LoadState::Loading, std::memory_order_relaxed);
    waiting_.push_back(&entry);
  }
}

void ExpertStore::demand(Entry& entry) { reader_.demand(layers_[entry.layer]->order(entry)); }

void ExpertStore::start_waiting() {
  while (!waiting_.empty()) {
    Buffer* staging = take_staging();
    if (!staging) return;
    Entry& e = *waiting_.front();
    waiting_.pop_front();
    e.is_waiting = false;
    layers_[e.layer]->bind(e, *staging);
    demand(e);
  }
}

// Returns a staging buffer that is unused, or whose reads were dropped and have ended by now; null
// if there is none.
Buffer* ExpertStore::free_staging() {
  for (Buffer* buffer : buffers_.staging()) {
    Entry* holder = buffer->holder;
    const bool is_held = holder && (holder->is_acquired || holder->is_early);
    if (is_held || (holder && state_of(*holder) != LoadState::Absent)) continue;
    if (holder) layers_[holder->layer]->unbind(*holder);
    return buffer;
  }
  return nullptr;
}

// Returns true while predictions leave as many buffers as one token can miss.
bool ExpertStore::may_predict() const {
  int num_predicted = experts_per_token();
  for (const Buffer* buffer : buffers_.staging())
    num_predicted += buffer->holder && !buffer->holder->is_acquired;
  return num_predicted < max_group();
}

// Returns a free buffer, or that of a prediction which is not needed now. A buffer that is being
// read into is taken only where there is no other, because that read has to be waited for.
Buffer* ExpertStore::take_staging() {
  if (Buffer* buffer = free_staging()) return buffer;
  Buffer* busy = nullptr;
  for (Buffer* buffer : buffers_.staging()) {
    Entry* holder = buffer->holder;
    if (holder->is_acquired) continue;
    abandon(*holder);
    if (!buffer->holder) return buffer;
    busy = buffer;
  }
  if (busy) vacate(*busy->holder);
  return busy;
}

void ExpertStore::release(int layer, int expert) {
  std::lock_guard guard(lock_);
  release_entry(entry(layer, expert));
  start_waiting();
}

void ExpertStore::release(int layer) {
  std::lock_guard guard(lock_);
  for (int e = 0; e < layers_[layer]->num_experts(); e++) release_entry(entry(layer, e));
  for (Buffer* buffer : buffers_.staging())
    if (buffer->holder && buffer->holder->layer == layer) abandon(*buffer->holder);
  start_waiting();
}

void ExpertStore::release_entry(Entry& entry) {
  if (!entry.is_acquired) return;
  entry.is_acquired = false;
  if (entry.is_waiting) {
    entry.is_waiting = false;
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &entry));
    reader_.cancel(entry);
  } else if (buffers_.is_staging(entry.buffer)) {
    abandon(entry);
  } else if (state_of(entry) == LoadState::Failed) {
    forget_bytes(entry);
  }
}

void ExpertStore::vacate(Entry& entry) {
  forget_bytes(entry);
  layers_[entry.layer]->unbind(entry);
}

// Gives a staging buffer back without waiting: reads that have begun keep it until they end.
void ExpertStore::abandon(Entry& entry) {
  note_waste(entry);
  if (state_of(entry) == LoadState::Loading && !reader_.drop(entry)) return;
  entry.state.store(LoadState::Absent, std::memory_order_relaxed);
  layers_[entry.layer]->unbind(entry);
}

void ExpertStore::forget_bytes(Entry& entry) {
  note_waste(entry);
  if (state_of(entry) == LoadState::Loading) reader_.cancel(entry);
  entry.state.store(LoadState::Absent, std::memory_order_relaxed);
}

// Counts bytes that were read early, or are being read, and are dropped unused.
void ExpertStore::note_waste(Entry& entry) {
  if (!std::exchange(entry.is_early, false)) return;
  if (state_of(entry) == LoadState::Ready)
    counting(entry.layer).wasted_bytes += int64_t(layers_[entry.layer]->order(entry).bytes());
}

void ExpertStore::prefetch(int layer, const int32_t* experts, int count,
                           std::vector<int32_t>& begun) {
  std::lock_guard guard(lock_);
  std::vector<Entry*> wanted;
  for (int i = 0; i < count; i++) {
    Entry& e = entry(layer, experts[i]);
    const bool is_repeat = std::find(wanted.begin(), wanted.end(), &e) != wanted.end();
    if (state_of(e) != LoadState::Absent || e.is_acquired || is_repeat) continue;
    if (!e.buffer) {
      Buffer* staging = may_predict() ? free_staging() : nullptr;
      if (!staging) continue;
      layers_[layer]->bind(e, *staging);
    }
    e.is_early = true;  // keeps its buffer while the others look for one
    wanted.push_back(&e);
    begun.push_back(experts[i]);
  }
  reader_.prefetch(orders(wanted));
  for (Entry* e : wanted) e->is_early = state_of(*e) != LoadState::Absent;
}

// Makes the orders for entries that have buffers and are to be read early.
std::vector<LoadOrder> ExpertStore::orders(const std::vector<Entry*>& entries) {
  std::vector<LoadOrder> batch;
  for (Entry* e : entries) {
    e->is_early = true;
    counting(e->layer).prefetched++;
    batch.push_back(layers_[e->layer]->order(*e));
  }
  return batch;
}

bool ExpertStore::holds(int layer, int expert) const {
  std::lock_guard guard(lock_);
  const Entry& e = entry(layer, expert);
  return policy_.resident(layer, expert) && state_of(e) == LoadState::Ready;
}

bool ExpertStore::exchange(int layer, int leaves, int enters, const uint8_t* const* pieces) {
  std::lock_guard guard(lock_);
  Entry &out = entry(layer, leaves), &in = entry(layer, enters);
  if (state_of(out) != LoadState::Ready || out.is_acquired || in.buffer) return false;
  if (!policy_.exchange(layer, leaves, enters)) return false;
  Buffer* slot = out.buffer;
  vacate(out);
  layers_[layer]->bind(in, *slot);
  layers_[layer]->fill(in, pieces);
  in.state.store(LoadState::Ready, std::memory_order_release);
  return true;
}

void ExpertStore::resize(const int32_t* slots) {
  std::lock_guard one_at_a_time(resize_lock_);
  for (int layer = 0; layer < num_layers(); layer++) {
    buffers_.retire(layer, shrink(layer, slots[layer]));
    grow(layer, slots[layer]);
  }
}

// Takes slots away from a layer that is not in use; returns them.
std::vector<Buffer*> ExpertStore::shrink(int layer, int num_slots) {
  std::lock_guard guard(lock_);
  std::vector<Buffer*> gone;
  for (int e = 0; e < num_experts(layer); e++)
    if (entry(layer, e).is_acquired) return gone;
  const int before = policy_.num_slots(layer);
  if (num_slots >= before) return gone;
  std::vector<Swap> swaps;
  policy_.resize(layer, num_slots, swaps);
  for (const Swap& swap : swaps) {
    Entry& leaves = entry(layer, swap.victim);
    buffers_.give_slot(layer, leaves.buffer);
    vacate(leaves);
  }
  for (int i = policy_.num_slots(layer); i < before; i++) gone.push_back(buffers_.take_slot(layer));
  return gone;
}

// Gives a layer more slots. Their pages are allocated while steps go on.
void ExpertStore::grow(int layer, int num_slots) {
  const int missing = std::min(num_slots, num_experts(layer)) - this->num_slots(layer);
  const auto slots = buffers_.recall(layer, missing, layers_[layer]->slot_bytes());
  std::lock_guard guard(lock_);
  std::vector<Swap> none;
  policy_.resize(layer, policy_.num_slots(layer) + int(slots.size()), none);
  for (Buffer* slot : slots) buffers_.give_slot(layer, slot);
}

int ExpertStore::num_slots(int layer) const {
  std::lock_guard guard(lock_);
  return policy_.num_slots(layer);
}

void ExpertStore::set_learning(bool learns) {
  std::lock_guard guard(lock_);
  policy_.set_learning(learns);
}

void ExpertStore::set_prefetching(bool prefetches) {
  std::lock_guard guard(lock_);
  policy_.set_prefetching(prefetches);
}

void ExpertStore::end_token() {
  std::lock_guard guard(lock_);
  swaps_.clear();
  policy_.end_token(swaps_);
  const bool pins_now = policy_.accesses_before_pin() >= 0 && before_pin_.accesses < 0;
  if (pins_now) before_pin_ = all_hits();
  if (pins_now || policy_.settings().kind == PolicyKind::Static) fill(swaps_);
  else apply(swaps_, -1);
}

HitCounts ExpertStore::all_hits() const {
  HitCounts sum{0, 0};
  for (const auto& layer : counts_)
    for (const StoreCounts& counts : layer)
      sum.accesses += counts.accesses, sum.hits += counts.hits;
  return sum;
}

HitCounts ExpertStore::before_pin() const {
  std::lock_guard guard(lock_);
  return before_pin_;
}

void ExpertStore::reset_sequence() {
  std::lock_guard guard(lock_);
  policy_.reset_sequence();
}

bool ExpertStore::is_ready(int layer, int expert) const {
  return state_of(entry(layer, expert)) == LoadState::Ready;
}

bool ExpertStore::lacks(int layer, int expert) const {
  std::lock_guard guard(lock_);
  return !entry(layer, expert).buffer && !policy_.takes_free(layer, expert);
}

bool ExpertStore::takes_staging(int layer, int expert) const {
  std::lock_guard guard(lock_);
  const Entry& e = entry(layer, expert);
  return e.is_waiting || buffers_.is_staging(e.buffer);
}

bool ExpertStore::wait(int layer, int expert) {
  Entry& e = entry(layer, expert);
  return state_of(e) == LoadState::Ready || wait_slowly(e);
}

bool ExpertStore::wait_slowly(Entry& entry) {
  begin_stall(entry.layer);
  for (int i = 0; i < kSpins && state_of(entry) == LoadState::Loading; i++) pause_thread();
  while (state_of(entry) == LoadState::Loading)
    entry.state.wait(LoadState::Loading, std::memory_order_acquire);
  end_stall(entry.layer);
  return state_of(entry) == LoadState::Ready;
}

void ExpertStore::begin_stall(int layer) {
  std::lock_guard guard(stall_lock_);
  if (!stalls_[layer].waiting++) stalls_[layer].since = std::chrono::steady_clock::now();
}

void ExpertStore::end_stall(int layer) {
  std::lock_guard guard(stall_lock_);
  Stall& stall = stalls_[layer];
  if (--stall.waiting) return;
  stall.ns[int(phase_.load())] +=
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - stall.since).count();
}

StoreCounts ExpertStore::counts(int layer, Phase phase) const {
  std::scoped_lock guard(lock_, stall_lock_);
  StoreCounts counts = counts_[layer][int(phase)];
  counts.stall_ns = stalls_[layer].ns[int(phase)];
  return counts;
}

void ExpertStore::uses(int layer, int64_t* uses) const {
  std::lock_guard guard(lock_);
  std::copy(uses_[layer].begin(), uses_[layer].end(), uses);
}

LayerReads ExpertStore::reads(int layer) const {
  std::lock_guard guard(lock_);
  LayerReads reads{fills_[layer], 0};
  for (int e = 0; e < layers_[layer]->num_experts(); e++)
    reads.bytes_read += entry(layer, e).bytes_read.load(std::memory_order_relaxed);
  return reads;
}

}  // namespace sharpi
