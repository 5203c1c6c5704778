#include "expert_store_buffers.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace sharpi {
namespace {

constexpr uint64_t kAlignment = 4096;
constexpr uint64_t round_down(uint64_t n) { return n / kAlignment * kAlignment; }
constexpr uint64_t round_up(uint64_t n) { return round_down(n + kAlignment - 1); }

size_t largest_slot(const std::vector<std::unique_ptr<StoreLayer>>& layers) {
  size_t bytes = 0;
  for (const auto& layer : layers) bytes = std::max(bytes, layer->slot_bytes());
  return bytes;
}

}  // namespace

StoreLayer::StoreLayer(const LayerLayout& layout, int layer)
    : layout_(layout), entries_(std::make_unique<Entry[]>(layout.num_experts)) {
  for (int piece = 0; piece < kPieces; piece++) {
    uint64_t widest = 0;
    for (int e = 0; e < num_experts(); e++)
      widest = std::max(widest, place(piece, e).last - place(piece, e).first);
    starts_[piece] = slot_bytes_;
    slot_bytes_ += widest;
    tables_[piece].assign(num_experts(), nullptr);
  }
  for (int e = 0; e < num_experts(); e++) entries_[e].layer = layer, entries_[e].expert = e;
}

int64_t StoreLayer::expert_bytes() const {
  int64_t bytes = 0;
  for (const PieceLayout& piece : layout_.pieces) bytes += int64_t(piece.bytes);
  return bytes;
}

StoreLayer::Place StoreLayer::place(int piece, int expert) const {
  const PieceLayout& p = layout_.pieces[piece];
  const uint64_t start = p.offset + uint64_t(expert) * p.bytes;
  return {round_down(start), round_up(start + p.bytes)};
}

void StoreLayer::bind(Entry& entry, Buffer& buffer) {
  entry.buffer = &buffer;
  buffer.holder = &entry;
  for (int piece = 0; piece < kPieces; piece++) {
    const PieceLayout& p = layout_.pieces[piece];
    const uint64_t start = p.offset + uint64_t(entry.expert) * p.bytes;
    tables_[piece][entry.expert] = buffer.data + starts_[piece] + start % kAlignment;
  }
}

void StoreLayer::unbind(Entry& entry) {
  entry.buffer->holder = nullptr;
  entry.buffer = nullptr;
  for (auto& table : tables_) table[entry.expert] = nullptr;
}

void StoreLayer::fill(Entry& entry, const uint8_t* const* pieces) const {
  for (int piece = 0; piece < kPieces; piece++) {
    const PieceLayout& p = layout_.pieces[piece];
    const uint64_t start = p.offset + uint64_t(entry.expert) * p.bytes;
    if (p.bytes)
      memcpy(entry.buffer->data + starts_[piece] + start % kAlignment, pieces[piece], p.bytes);
  }
}

LoadOrder StoreLayer::order(Entry& entry) const {
  LoadOrder order{&entry, {}};
  for (int piece = 0; piece < kPieces; piece++) {
    const Place p = place(piece, entry.expert);
    order.ranges.push_back({layout_.pieces[piece].file, p.first, size_t(p.last - p.first),
                            entry.buffer->data + starts_[piece]});
  }
  return order;
}

StoreBuffers::StoreBuffers(const std::vector<std::unique_ptr<StoreLayer>>& layers, int num_staging)
    : memory_(total_bytes(layers, num_staging)),
      free_slots_(layers.size()),
      retired_(layers.size()),
      bytes_(memory_.bytes()) {
  uint8_t* at = memory_.data();
  const auto next = [&](size_t bytes) { return cut(std::exchange(at, at + bytes), bytes); };
  for (size_t i = 0; i < layers.size(); i++)
    for (int slot = 0; slot < layers[i]->num_slots(); slot++)
      free_slots_[i].push_back(next(layers[i]->slot_bytes()));
  for (int i = 0; i < num_staging; i++) staging_.push_back(next(largest_slot(layers)));
}

Buffer* StoreBuffers::cut(uint8_t* at, size_t bytes) {
  buffers_.push_back(std::make_unique<Buffer>(Buffer{at, bytes}));
  return buffers_.back().get();
}

size_t StoreBuffers::total_bytes(const std::vector<std::unique_ptr<StoreLayer>>& layers,
                                 int num_staging) {
  size_t bytes = size_t(num_staging) * largest_slot(layers);
  for (const auto& layer : layers) bytes += size_t(layer->num_slots()) * layer->slot_bytes();
  return bytes;
}

Buffer* StoreBuffers::take_slot(int layer) {
  if (free_slots_[layer].empty()) return nullptr;
  Buffer* buffer = free_slots_[layer].back();
  free_slots_[layer].pop_back();
  return buffer;
}

void StoreBuffers::retire(int layer, const std::vector<Buffer*>& slots) {
  for (Buffer* slot : slots) {
    SlotMemory::give_back(slot->data, slot->bytes);
    bytes_ -= slot->bytes;
    retired_[layer].push_back(slot);
  }
}

std::vector<Buffer*> StoreBuffers::recall(int layer, int count, size_t slot_bytes) {
  std::vector<Buffer*> slots;
  while (int(slots.size()) < count) {
    Buffer* slot = retired_[layer].empty() ? add(slot_bytes) : retired_[layer].back();
    if (!slot) break;
    if (!retired_[layer].empty()) {
      retired_[layer].pop_back();
      SlotMemory::take_back(slot->data, slot->bytes);
    }
    bytes_ += slot->bytes;
    slots.push_back(slot);
  }
  return slots;
}

Buffer* StoreBuffers::add(size_t bytes) {
  try {
    further_.push_back(std::make_unique<SlotMemory>(bytes));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  return cut(further_.back()->data(), bytes);
}

bool StoreBuffers::is_staging(const Buffer* buffer) const {
  return std::find(staging_.begin(), staging_.end(), buffer) != staging_.end();
}

void StoreBuffers::exchange(Buffer* staging, Buffer* slot) {
  *std::find(staging_.begin(), staging_.end(), staging) = slot;
}

}  // namespace sharpi
