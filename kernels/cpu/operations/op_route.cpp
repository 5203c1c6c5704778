// The router's choice: scores, top-k and weights of each token; and its effects on experts that are
// not in memory.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "experts/store/expert_feed.h"
#include "ops.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

// Takes the largest score from `choice`, the first among equals, k times. NaN is chosen last, so
// that ids stay distinct.
void choose(std::vector<float>& choice, int k, int32_t* ids) {
  for (float& c : choice)
    if (std::isnan(c)) c = -std::numeric_limits<float>::max();
  for (int i = 0; i < k; i++) {
    const auto best = std::max_element(choice.begin(), choice.end());
    ids[i] = int32_t(best - choice.begin());
    *best = -INFINITY;
  }
}

class Route : public Stage {
 public:
  explicit Route(const RouteParams& params) : p_(params) {}
  int num_tasks(const Step& step) const override { return count_rows(Rows(p_.rows), step); }

  void run(const Step&, int row, int, Worker&) const override {
    thread_local std::vector<float> scores, choice;
    const float* logits = p_.logits + size_t(row) * p_.num_experts;
    if (Scoring(p_.scoring) == Scoring::SparseMixer) return mix_sparsely(logits, row);
    score(logits, scores);
    choice = scores;
    if (p_.bias)
      for (int e = 0; e < p_.num_experts; e++) choice[e] += p_.bias[e];
    if (p_.num_groups > 1) hide_weak_groups(choice);
    int32_t* ids = p_.ids + size_t(row) * p_.k;
    choose(choice, p_.k, ids);
    weigh(scores, ids, p_.weights + size_t(row) * p_.k);
  }

 private:
  void score(const float* logits, std::vector<float>& scores) const {
    scores.assign(logits, logits + p_.num_experts);
    if (Scoring(p_.scoring) == Scoring::Sigmoid)
      for (float& s : scores) s = 1.f / (1.f + std::exp(-s));
    if (Scoring(p_.scoring) == Scoring::Softmax) softmax(scores.data(), p_.num_experts);
  }
  // Chooses one expert after the other, weighted against those whose logits are within 2 % of its
  // own (SparseMixer, arXiv 2409.12136).
  void mix_sparsely(const float* logits, int row) const {
    constexpr float kNear = 0.02f;
    thread_local std::vector<float> left;
    left.assign(logits, logits + p_.num_experts);
    for (int i = 0; i < p_.k; i++) {
      int32_t& id = p_.ids[size_t(row) * p_.k + i];
      id = int32_t(std::max_element(left.begin(), left.end()) - left.begin());
      const float peak = left[id];
      float total = 0;
      for (int e = 0; e < p_.num_experts; e++) {
        const bool is_near = (peak - logits[e]) / std::max(std::abs(logits[e]), peak) <= kNear;
        if (is_near) total += std::exp(left[e] - peak);
      }
      p_.weights[size_t(row) * p_.k + i] = p_.scale / total;
      left[id] = -INFINITY;
    }
  }
  static void softmax(float* x, int n) {
    const float peak = *std::max_element(x, x + n);
    float total = 0;
    for (int i = 0; i < n; i++) total += x[i] = std::exp(x[i] - peak);
    for (int i = 0; i < n; i++) x[i] /= total;
  }
  // Ranks groups by the sum of their two best scores (DeepSeek-V3), or for softmax scores by the
  // best alone (DeepSeek-V2); experts of the weaker groups are never chosen.
  void hide_weak_groups(std::vector<float>& choice) const {
    const int size = p_.num_experts / p_.num_groups;
    std::vector<std::pair<float, int>> groups;
    for (int g = 0; g < p_.num_groups; g++) {
      float best = -INFINITY, second = -INFINITY;
      for (int e = g * size; e < (g + 1) * size; e++) {
        second = std::max(second, std::min(best, choice[e]));
        best = std::max(best, choice[e]);
      }
      const bool takes_two = size > 1 && Scoring(p_.scoring) != Scoring::Softmax;
      groups.push_back({-(takes_two ? best + second : best), g});
    }
    std::sort(groups.begin(), groups.end());
    for (int i = p_.groups_used; i < p_.num_groups; i++)
      std::fill_n(choice.begin() + groups[i].second * size, size, -INFINITY);
  }
  void weigh(const std::vector<float>& scores, const int32_t* ids, float* weights) const {
    float total = 0;
    for (int i = 0; i < p_.k; i++) weights[i] = scores[ids[i]];
    if (Scoring(p_.scoring) == Scoring::SoftmaxOfChosen) softmax(weights, p_.k);
    for (int i = 0; i < p_.k; i++) total += weights[i];
    const float scale = p_.normalise ? p_.scale / std::max(total, 6.103515625e-5f) : p_.scale;
    for (int i = 0; i < p_.k; i++) weights[i] *= scale;
  }

  const RouteParams p_;
};

class Acquire : public Stage {
 public:
  explicit Acquire(const AcquireParams& params) : p_(params) {}
  int num_tasks(const Step&) const override { return 1; }
  void run(const Step& step, int, int, Worker&) const override {
    p_.feed->acquire(p_.layer, p_.ids, count_rows(Rows(p_.rows), step), p_.k, kind_of(step));
  }

 private:
  // Experts of drafts stay in slots like those of single tokens; experts of prompts do not.
  StepKind kind_of(const Step& step) const {
    const bool is_prompt = p_.feed->phase() == Phase::Prompt;
    for (int t = 1; t < step.num_tokens; t++)
      if (step.sequences[t] == step.sequences[t - 1])
        return is_prompt ? StepKind::Batch : StepKind::Drafted;
    return step.num_tokens == 1 ? StepKind::Token : StepKind::Tokens;
  }

  const AcquireParams p_;
};

// Predicts routes for decoded tokens only: a batch uses too many experts to name. The likeliest
// experts of each token come first.
class PredictRoutes : public Stage {
 public:
  explicit PredictRoutes(const PredictRoutesParams& params) : p_(params) {}
  int num_tasks(const Step& step) const override { return step.num_predicted > 0; }
  void run(const Step& step, int, int, Worker&) const override {
    thread_local std::vector<int32_t> ids, likeliest;
    ids.resize(size_t(step.num_predicted) * p_.k);
    for (int row = 0; row < step.num_predicted; row++) choose_of(row, ids.data() + row * p_.k);
    likeliest.clear();
    for (int rank = 0; rank < p_.k; rank++)
      for (int row = 0; row < step.num_predicted; row++) {
        const int32_t e = ids[size_t(row) * p_.k + rank];
        if (std::find(likeliest.begin(), likeliest.end(), e) == likeliest.end())
          likeliest.push_back(e);
      }
    p_.feed->predict_routes(p_.layer, likeliest.data(), int(likeliest.size()));
  }

 private:
  void choose_of(int row, int32_t* ids) const {
    thread_local std::vector<float> choice;
    const float* logits = p_.logits + size_t(row) * p_.num_experts;
    choice.assign(logits, logits + p_.num_experts);
    if (p_.bias)  // it is added to sigmoids
      for (int e = 0; e < p_.num_experts; e++)
        choice[e] = 1.f / (1.f + std::exp(-choice[e])) + p_.bias[e];
    choose(choice, p_.k, ids);
  }

  const PredictRoutesParams p_;
};

}  // namespace

void add_route(Program& program, const RouteParams& p) { program.add<Route>(p); }
void add_acquire(Program& program, const AcquireParams& p) { program.add<Acquire>(p); }
void add_predict_routes(Program& program, const PredictRoutesParams& p) {
  program.add<PredictRoutes>(p);
}

}  // namespace sharpi
