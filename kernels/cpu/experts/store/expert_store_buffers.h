// The buffers that experts are read into: slots of a layer, and staging buffers that all layers
// share.
//
// A buffer holds, for each of an expert's three pieces, the aligned range of the file around it, so
// that a direct read lands in place.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "direct_reader.h"
#include "slot_memory.h"

namespace sharpi {

constexpr int kPieces = 3;  // gate, up, down

// The place of a matrix of a layer's experts in a file: expert 0 at `offset`, the others behind it.
struct PieceLayout {
  int32_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;  // of one expert
};

// A layer without experts has no pieces.
struct LayerLayout {
  int num_experts = 0, num_slots = 0;
  std::array<PieceLayout, kPieces> pieces;
};

struct Entry;

struct Buffer {
  uint8_t* data;
  size_t bytes;
  Entry* holder = nullptr;
};

// An expert of a layer: its buffer, and its users.
struct Entry : Load {
  int32_t layer = 0, expert = 0;
  Buffer* buffer = nullptr;
  bool is_acquired = false;  // between acquire and release
  bool is_waiting = false;   // acquired, but no buffer is free for it yet
  bool is_early = false;     // read before it was requested, and not used since
};

// One layer's geometry and entries.
class StoreLayer {
 public:
  StoreLayer(const LayerLayout& layout, int layer);

  int num_experts() const { return layout_.num_experts; }
  int num_slots() const { return layout_.num_slots; }
  size_t slot_bytes() const { return slot_bytes_; }
  // The weights of one expert, without what alignment adds.
  int64_t expert_bytes() const;
  Entry& entry(int expert) { return entries_[expert]; }
  // Returns the addresses of the experts' pieces, (experts) for each piece; valid for experts that
  // are ready.
  const uint8_t* const* table(int piece) const { return tables_[piece].data(); }

  // Binds an expert to a buffer and updates the tables.
  void bind(Entry& entry, Buffer& buffer);
  void unbind(Entry& entry);
  LoadOrder order(Entry& entry) const;
  // Copies an expert's pieces from memory to its buffer; null for a piece without bytes.
  void fill(Entry& entry, const uint8_t* const* pieces) const;

 private:
  struct Place {
    uint64_t first, last;  // the aligned range of the file around a piece
  };
  Place place(int piece, int expert) const;

  const LayerLayout layout_;
  size_t starts_[kPieces + 1];  // of the pieces within a buffer
  size_t slot_bytes_ = 0;
  std::unique_ptr<Entry[]> entries_;
  std::array<std::vector<const uint8_t*>, kPieces> tables_;
};

// All buffers, cut from one region of memory.
class StoreBuffers {
 public:
  StoreBuffers(const std::vector<std::unique_ptr<StoreLayer>>& layers, int num_staging);

  // Returns a free slot of the layer, or null.
  Buffer* take_slot(int layer);
  void give_slot(int layer, Buffer* buffer) { free_slots_[layer].push_back(buffer); }
  const std::vector<Buffer*>& staging() const { return staging_; }
  bool is_staging(const Buffer* buffer) const;
  // Makes `slot` a staging buffer, and `staging` a slot in its place. Both must have the same size.
  void exchange(Buffer* staging, Buffer* slot);
  // Gives the memory of free slots, which were taken, to the system; `recall` gets it back.
  void retire(int layer, const std::vector<Buffer*>& slots);
  // Returns slots to be given to the layer: those that were retired, then new ones of their own
  // memory, each of `slot_bytes`. Fewer than `count` where there is no memory.
  std::vector<Buffer*> recall(int layer, int count, size_t slot_bytes);
  size_t bytes() const { return bytes_; }

 private:
  static size_t total_bytes(const std::vector<std::unique_ptr<StoreLayer>>& layers,
                            int num_staging);

  Buffer* cut(uint8_t* at, size_t bytes);
  Buffer* add(size_t bytes);

  SlotMemory memory_;
  std::vector<std::unique_ptr<SlotMemory>> further_;  // each has one slot
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::vector<Buffer*>> free_slots_;  // by layer
  std::vector<std::vector<Buffer*>> retired_;     // by layer
  std::atomic<size_t> bytes_;                     // without those of retired slots
  std::vector<Buffer*> staging_;
};

}  // namespace sharpi
