// Feed-forward over experts: tokens grouped by expert, gate and up fused with the activation, down
// weighted and summed.
//
// Every token's experts are summed in the order of their ids, whatever the batch, so the bits
// depend neither on the other tokens nor on which experts were in memory. In the last stage a
// thread owns 32 of the outputs and goes through all experts: no atomics, no partial sums.
#include "expert_down.h"
#include "expert_up.h"

namespace sharpi {
namespace {

// Waits for what other ranks compute.
class Await : public Stage {
 public:
  explicit Await(ExpertFeed& feed) : feed_(feed) {}
  int num_tasks(const Step&) const override { return 1; }
  void run(const Step&, int, int, Worker&) const override { feed_.wait_for_ranks(); }

 private:
  ExpertFeed& feed_;
};

// Releases a batch's experts; with the last batch, those of the whole layer.
class Release : public Stage {
 public:
  Release(const ExpertShape& shape, int batch) : s_(shape), batch_(batch) {}
  int num_tasks(const Step& step) const override {
    return batch_ == 0 || s_.may_have(batch_, step) ? 1 : 0;
  }
  void run(const Step&, int, int, Worker&) const override {
    const Grouping g = s_.view();
    const bool is_last = batch_ + 1 == std::max(1, *g.num_batches);
    if (is_last) return s_.p.feed->release(s_.p.layer);
    if (batch_ >= *g.num_batches) return;
    const JobBatch batch = g.batches[batch_];
    for (int j = batch.first; j < batch.end; j++) s_.p.feed->release(s_.p.layer, g.jobs[j].expert);
  }

 private:
  const ExpertShape s_;
  const int batch_;
};

}  // namespace

void add_experts(Program& program, const ExpertsParams& p) {
  const ExpertShape shape(program, p);
  program.add<Group>(shape);
  if (!shape.floats_in())
    program.add<Quantise>(p.x, p.up.columns, Rows(p.rows), shape.rounding(), program.isa,
                          shape.input);
  for (int batch = 0; batch < shape.max_batches; batch++) {
    program.add<GateUp>(shape, batch, Part::There);
    if (p.feed) program.add<GateUp>(shape, batch, Part::InFlight);
    if (batch == 0 && p.feed && p.feed->remote()) program.add<Await>(*p.feed);
    program.add<Down>(shape, batch);
    if (p.feed) program.add<Release>(shape, batch);
  }
}

}  // namespace sharpi
