#include "remote_experts.h"

#include <algorithm>
#include <cstring>

namespace sharpi {

using Clock = std::chrono::steady_clock;

static int64_t ns_since(Clock::time_point start) {
  return std::chrono::nanoseconds(Clock::now() - start).count();
}

RemoteExperts::RemoteExperts(int num_layers, int num_experts, int num_ranks, int max_tokens)
    : num_layers_(num_layers),
      num_experts_(num_experts),
      max_tokens_(max_tokens),
      ranks_(size_t(num_layers) * num_experts),
      accesses_(num_layers),
      uses_(size_t(num_layers) * num_experts) {
  for (int rank = 0; rank < num_ranks; rank++) channels_.push_back(std::make_unique<Channel>());
}

void RemoteExperts::add_experts(int layer, int first, int end, int rank) {
  for (int expert = first; expert < end; expert++)
    ranks_[size_t(layer) * num_experts_ + expert] = int8_t(1 + rank);
}

int RemoteExperts::add_item(int rank, int32_t token, int32_t expert, float weight) {
  Channel& channel = *channels_[rank];
  channel.items.push_back({token, expert, weight});
  return int(channel.items.size()) - 1;
}

void RemoteExperts::count(int layer, Phase phase, int expert, int uses) {
  accesses_[layer][int(phase)]++;
  uses_[size_t(layer) * num_experts_ + expert] += uses;
}

void RemoteExperts::send_requests(int layer, const float* x, int tokens, int columns, int rows) {
  for (const auto& channel : channels_) {
    if (channel->items.empty()) continue;
    write(*channel, layer, x, tokens, columns);
    channel->rows = rows;
    channel->reply.resize(channel->items.size() * rows);
    channel->items.clear();
    {
      std::lock_guard guard(channel->lock);
      channel->state = State::Requested, channel->is_taken = false;
      channel->since = Clock::now();
    }
    channel->changed.notify_all();
  }
}

void RemoteExperts::write(Channel& channel, int layer, const float* x, int tokens, int columns) {
  const size_t items = channel.items.size(), values = size_t(tokens) * columns;
  channel.request.resize(4 * (4 + 3 * items + values));
  const int32_t header[] = {layer, tokens, int32_t(items), columns};
  auto* at = reinterpret_cast<int32_t*>(channel.request.data());
  memcpy(at, header, sizeof header);
  auto* weights = reinterpret_cast<float*>(at + 4 + 2 * items);
  for (size_t i = 0; i < items; i++) {
    at[4 + 2 * i] = channel.items[i].token, at[5 + 2 * i] = channel.items[i].expert;
    weights[i] = channel.items[i].weight;
  }
  memcpy(weights + items, x, sizeof(float) * values);
}

bool RemoteExperts::wait_for_replies() {
  bool has_reply = true;
  for (const auto& channel : channels_) {
    std::unique_lock guard(channel->lock);
    if (channel->state == State::Idle) continue;
    const auto start = Clock::now();
    channel->changed.wait(guard, [&] { return channel->state != State::Requested; });
    channel->counts.stall_ns += ns_since(start);
    has_reply = has_reply && channel->state == State::Replied;
    channel->state = State::Idle;
  }
  return has_reply;
}

const uint8_t* RemoteExperts::next_request(int rank, size_t& bytes) {
  Channel& channel = *channels_[rank];
  std::unique_lock guard(channel.lock);
  channel.changed.wait(
      guard, [&] { return ends_ || (channel.state == State::Requested && !channel.is_taken); });
  if (channel.state != State::Requested || channel.is_taken) return nullptr;
  channel.is_taken = true;
  bytes = channel.request.size();
  return channel.request.data();
}

float* RemoteExperts::reply_buffer(int rank, size_t& bytes) {
  Channel& channel = *channels_[rank];
  bytes = channel.reply.size() * sizeof(float);
  return channel.reply.data();
}

void RemoteExperts::complete(int rank, bool has_reply) {
  Channel& channel = *channels_[rank];
  {
    std::lock_guard guard(channel.lock);
    channel.counts.requests++;
    channel.counts.sent_bytes += int64_t(channel.request.size());
    channel.counts.received_bytes += int64_t(channel.reply.size() * sizeof(float));
    channel.counts.round_trip_ns += ns_since(channel.since);
    channel.state = has_reply ? State::Replied : State::Failed;
  }
  channel.changed.notify_all();
}

void RemoteExperts::remove_rank(int rank) {
  for (auto& each : ranks_)
    if (each == 1 + rank) each = 0;
}

void RemoteExperts::end() {
  for (const auto& channel : channels_) {
    std::lock_guard guard(channel->lock);
    ends_ = true;
  }
  for (const auto& channel : channels_) channel->changed.notify_all();
}

void RemoteExperts::uses(int layer, int64_t* uses) const {
  std::copy_n(uses_.begin() + size_t(layer) * num_experts_, num_experts_, uses);
}

RemoteCounts RemoteExperts::counts(int rank) const {
  std::lock_guard guard(channels_[rank]->lock);
  return channels_[rank]->counts;
}

}  // namespace sharpi
