#include "expert_jobs.h"

#include "experts/store/expert_feed.h"

namespace sharpi {
namespace {

// two counts, and padding that puts the jobs on a cache line of their own
constexpr int kHeaderInts = 16;

}  // namespace

ExpertShape::ExpertShape(Program& program, const ExpertsParams& params)
    : p(params), isa(program.isa), shares_rows(program.shares_rows) {
  const int max_rows = program.max_rows(Rows(p.rows));
  slots = max_rows * p.k;
  max_jobs = std::min(p.num_experts, slots);
  batch_staging = p.feed ? p.feed->max_staging() : max_jobs;
  max_batches = (max_jobs + batch_staging - 1) / batch_staging;
  input =
      program.request(Scratch::Activations, activation_bytes(max_rows, p.up.columns, rounding()));
  hidden = program.request(Scratch::Hidden, size_t(slots) * width() * sizeof(float));
  hidden_rounded =
      program.request(Scratch::HiddenActivations, activation_bytes(slots, width(), rounding()));
  grouping = program.request(Scratch::Jobs, grouping_bytes());
  sums = max_batches > 1
             ? program.request(Scratch::Sums, size_t(max_rows) * p.down.rows * sizeof(float))
             : nullptr;
}

size_t ExpertShape::grouping_bytes() const {
  return kHeaderInts * sizeof(int32_t) + (sizeof(Job) + 4) * max_jobs +
         sizeof(JobBatch) * max_batches + 8 * size_t(slots) + 4 * size_t(max_jobs) * blocks();
}

void ExpertShape::weights_of(const StackedMatrix& stacked, int tile,
                             std::vector<Bytes>& out) const {
  for (int expert = 0; expert < p.num_experts; expert++)
    out.push_back(rows_of(tile_product(stacked.matrix(expert), QuantType(stacked.type),
                                       stacked.rows, stacked.columns, tile * kTileRows)));
}

Grouping ExpertShape::view() const {
  uint8_t* at = *grouping;
  const auto take = [&at](auto*& view, size_t count) {
    view = reinterpret_cast<std::decay_t<decltype(view)>>(at);
    at += sizeof(*view) * count;
  };
  Grouping g;
  take(g.num_jobs, 1);
  take(g.num_batches, kHeaderInts - 1);
  take(g.jobs, max_jobs);
  take(g.batches, max_batches);
  take(g.order, max_jobs);
  take(g.tokens, slots);
  take(g.weights, slots);
  take(g.tiles_done, size_t(max_jobs) * blocks());
  return g;
}

void Group::run(const Step& step, int, int, Worker&) const {
  Grouping g = s_.view();
  make_jobs(step, g);
  if (s_.p.feed && s_.p.feed->remote()) request_remote_jobs(step, g);
  make_batches(g);
  for (int i = 0; i < *g.num_jobs * s_.blocks(); i++)
    g.tiles_done[i].store(0, std::memory_order_relaxed);
}

void Group::make_jobs(const Step& step, Grouping& g) const {
  const int routes = s_.p.feed && s_.p.feed->has_failed() ? 0 : s_.count_rows(step) * s_.p.k;
  thread_local std::vector<int32_t> next;
  next.assign(s_.p.num_experts + 1, 0);
  for (int i = 0; i < routes; i++) next[expert(i) + 1]++;
  *g.num_jobs = 0;
  for (int e = 0; e < s_.p.num_experts; e++) {
    if (next[e + 1]) g.jobs[(*g.num_jobs)++] = {e, next[e], next[e + 1]};
    next[e + 1] += next[e];
  }
  for (int i = 0; i < routes; i++) {
    const int slot = next[expert(i)]++;
    g.tokens[slot] = i / s_.p.k;
    g.weights[slot] = s_.p.weights ? s_.p.weights[i] : 1.f;
  }
}

// Groups jobs into batches: a batch has as many jobs as can hold a staging buffer for their expert
// at the same time, and the jobs between them that need none. An expert in flight counts as well: a
// batch of few jobs is computed while the next ones are read.
void Group::make_batches(Grouping& g) const {
  *g.num_batches = 0;
  int first = 0, awaited = 0;
  for (int j = 0; j < *g.num_jobs; j++) {
    const Job& job = g.jobs[j];
    const bool is_awaited =
        s_.p.feed && !job.is_remote() && s_.p.feed->is_awaited(s_.p.layer, job.expert);
    if (is_awaited && awaited == s_.batch_staging) order_batch(g, first, j), first = j, awaited = 0;
    awaited += is_awaited;
  }
  if (*g.num_jobs) order_batch(g, first, *g.num_jobs);
}

void Group::order_batch(Grouping& g, int first, int end) const {
  thread_local std::vector<int32_t> in_flight, remote;
  in_flight.clear(), remote.clear();
  int at = first;
  for (int j = first; j < end; j++) {
    const bool is_there = !s_.p.feed || s_.p.feed->is_ready(s_.p.layer, g.jobs[j].expert);
    if (g.jobs[j].is_remote()) remote.push_back(j);
    else if (is_there) g.order[at++] = j;
    else in_flight.push_back(j);
  }
  g.batches[(*g.num_batches)++] = {first, at, at + int32_t(in_flight.size()), end};
  int32_t* rest = std::copy(in_flight.begin(), in_flight.end(), g.order + at);
  std::copy(remote.begin(), remote.end(), rest);
}

// Requests the jobs whose experts other ranks have from them, as the feed has decided.
void Group::request_remote_jobs(const Step& step, Grouping& g) const {
  RemoteExperts& remote = *s_.p.feed->remote();
  for (Job* job = g.jobs; job < g.jobs + *g.num_jobs; job++) {
    job->rank = s_.p.feed->requested_rank(job->expert);
    if (!job->is_remote()) continue;
    for (int slot = job->first; slot < job->first + job->count; slot++) {
      const float weight = s_.p.weighs_input ? g.weights[slot] : 1.f;
      const int item = remote.add_item(job->rank, g.tokens[slot], job->expert, weight);
      if (slot == job->first) job->item = item;
    }
    remote.count(s_.p.layer, s_.p.feed->phase(), job->expert, job->count);
  }
  remote.send_requests(s_.p.layer, s_.p.x, s_.count_rows(step), s_.p.up.columns, s_.p.down.rows);
}

}  // namespace sharpi
