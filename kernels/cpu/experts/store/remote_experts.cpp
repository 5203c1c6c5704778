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
  for (int rank = 0; rank < num_ranks; rank++) lines_.push_back(std::make_unique<Line>());
}

void RemoteExperts::lend(int layer, int first, int end, int rank) {
  for (int expert = first; expert < end; expert++)
    ranks_[size_t(layer) * num_experts_ + expert] = int8_t(1 + rank);
}

int RemoteExperts::add(int rank, int32_t token, int32_t expert, float weight) {
  Line& line = *lines_[rank];
  line.items.push_back({token, expert, weight});
  return int(line.items.size()) - 1;
}

void RemoteExperts::count(int layer, Phase phase, int expert, int uses) {
  accesses_[layer][int(phase)]++;
  uses_[size_t(layer) * num_experts_ + expert] += uses;
}

void RemoteExperts::ask(int layer, const float* x, int tokens, int columns, int rows) {
  for (const auto& line : lines_) {
    if (line->items.empty()) continue;
    write(*line, layer, x, tokens, columns);
    line->rows = rows;
    line->answer.resize(line->items.size() * rows);
    line->items.clear();
    {
      std::lock_guard guard(line->lock);
      line->state = State::Asked, line->is_taken = false;
      line->since = Clock::now();
    }
    line->changed.notify_all();
  }
}

void RemoteExperts::write(Line& line, int layer, const float* x, int tokens, int columns) {
  const size_t items = line.items.size(), values = size_t(tokens) * columns;
  line.question.resize(4 * (4 + 3 * items + values));
  const int32_t header[] = {layer, tokens, int32_t(items), columns};
  auto* at = reinterpret_cast<int32_t*>(line.question.data());
  memcpy(at, header, sizeof header);
  auto* weights = reinterpret_cast<float*>(at + 4 + 2 * items);
  for (size_t i = 0; i < items; i++) {
    at[4 + 2 * i] = line.items[i].token, at[5 + 2 * i] = line.items[i].expert;
    weights[i] = line.items[i].weight;
  }
  memcpy(weights + items, x, sizeof(float) * values);
}

bool RemoteExperts::await() {
  bool is_right = true;
  for (const auto& line : lines_) {
    std::unique_lock guard(line->lock);
    if (line->state == State::Idle) continue;
    const auto start = Clock::now();
    line->changed.wait(guard, [&] { return line->state != State::Asked; });
    line->counts.stall_ns += ns_since(start);
    is_right = is_right && line->state == State::Answered;
    line->state = State::Idle;
  }
  return is_right;
}

const uint8_t* RemoteExperts::take(int rank, size_t& bytes) {
  Line& line = *lines_[rank];
  std::unique_lock guard(line.lock);
  line.changed.wait(guard, [&] { return ends_ || (line.state == State::Asked && !line.is_taken); });
  if (line.state != State::Asked || line.is_taken) return nullptr;
  line.is_taken = true;
  bytes = line.question.size();
  return line.question.data();
}

float* RemoteExperts::answer_of(int rank, size_t& bytes) {
  Line& line = *lines_[rank];
  bytes = line.answer.size() * sizeof(float);
  return line.answer.data();
}

void RemoteExperts::give(int rank, bool is_right) {
  Line& line = *lines_[rank];
  {
    std::lock_guard guard(line.lock);
    line.counts.questions++;
    line.counts.sent_bytes += int64_t(line.question.size());
    line.counts.received_bytes += int64_t(line.answer.size() * sizeof(float));
    line.counts.round_trip_ns += ns_since(line.since);
    line.state = is_right ? State::Answered : State::Failed;
  }
  line.changed.notify_all();
}

void RemoteExperts::forget(int rank) {
  for (auto& each : ranks_)
    if (each == 1 + rank) each = 0;
}

void RemoteExperts::end() {
  for (const auto& line : lines_) {
    std::lock_guard guard(line->lock);
    ends_ = true;
  }
  for (const auto& line : lines_) line->changed.notify_all();
}

void RemoteExperts::uses(int layer, int64_t* uses) const {
  std::copy_n(uses_.begin() + size_t(layer) * num_experts_, num_experts_, uses);
}

RemoteCounts RemoteExperts::counts(int rank) const {
  std::lock_guard guard(lines_[rank]->lock);
  return lines_[rank]->counts;
}

}  // namespace sharpi
