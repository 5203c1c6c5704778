// Experts that other ranks have in memory: which rank has which, and a step's requests to them.
//
// A step requests the values of experts from the ranks that have them, computes its own, and waits.
// For each rank a thread outside sends the requests and stores the replies. A request holds int32
// numbers: layer, tokens, items and columns; for each item its token and its expert; then as
// float32 each item's weight, and the tokens' inputs (tokens, columns). A reply has the values
// (items, rows).
#pragma once
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "expert_store.h"

namespace sharpi {

// What other ranks computed, and the time that it took.
struct RemoteCounts {
  int64_t requests = 0, sent_bytes = 0, received_bytes = 0;
  int64_t stall_ns = 0;       // nanoseconds that a step waited for replies
  int64_t round_trip_ns = 0;  // of all requests, until their replies arrived
};

class RemoteExperts {
 public:
  // Steps with more tokens send no requests.
  RemoteExperts(int num_layers, int num_experts, int num_ranks, int max_tokens);

  // Records that rank `rank`, by its index, has experts [first, end) of a layer in memory.
  void add_experts(int layer, int first, int end, int rank);
  // Returns the rank that has an expert, or -1.
  int rank_of(int layer, int expert) const {
    return ranks_[size_t(layer) * num_experts_ + expert].load(std::memory_order_relaxed) - 1;
  }
  int max_tokens() const { return max_tokens_; }

  // A step's side, one thread: adds an item, whose index it returns, to the request to a rank.
  int add_item(int rank, int32_t token, int32_t expert, float weight);
  // Counts an expert that is requested, and the tokens that use it.
  void count(int layer, Phase phase, int expert, int uses);
  // Sends a request to each rank for which items were added; `rows` are those of a reply's item.
  void send_requests(int layer, const float* x, int tokens, int columns, int rows);
  // Waits for all replies. Returns false where a rank's thread got none.
  bool wait_for_replies();
  const float* values(int rank, int item) const {
    return channels_[rank]->reply.data() + size_t(item) * channels_[rank]->rows;
  }

  // The side of a rank's thread: waits for a request. Returns null at the end.
  const uint8_t* next_request(int rank, size_t& bytes);
  // Returns the buffer for the reply to that request, and its size.
  float* reply_buffer(int rank, size_t& bytes);
  // Says that the reply is in the buffer, or that there is none.
  void complete(int rank, bool has_reply);
  // Stops sending requests to a rank, between two steps or during one.
  void remove_rank(int rank);
  // Ends every wait for a request.
  void end();

  int num_experts() const { return num_experts_; }
  int num_layers() const { return num_layers_; }
  int64_t accesses(int layer, Phase phase) const { return accesses_[layer][int(phase)]; }
  void uses(int layer, int64_t* uses) const;
  RemoteCounts counts(int rank) const;

 private:
  enum class State { Idle, Requested, Replied, Failed };
  struct Item {
    int32_t token, expert;
    float weight;
  };
  // What goes to one rank and comes back.
  struct Channel {
    std::vector<Item> items;
    std::vector<uint8_t> request;
    std::vector<float> reply;
    int rows = 0;
    State state = State::Idle;
    bool is_taken = false;
    std::chrono::steady_clock::time_point since;
    RemoteCounts counts;
    mutable std::mutex lock;
    std::condition_variable changed;
  };
  static void write(Channel& channel, int layer, const float* x, int tokens, int columns);

  const int num_layers_, num_experts_, max_tokens_;
  std::vector<std::atomic<int8_t>> ranks_;  // (layers, experts), 0 for none, else 1 + the index
  std::vector<std::array<int64_t, kPhases>> accesses_;
  std::vector<int64_t> uses_;  // (layers, experts)
  std::vector<std::unique_ptr<Channel>> channels_;
  bool ends_ = false;
};

}  // namespace sharpi
