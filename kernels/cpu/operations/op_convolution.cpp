// Causal convolution of each channel on its own: one task per sequence and run of channels, its
// tokens in order.
#include <algorithm>
#include <cstring>

#include "recurrent.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

constexpr int kChannels = 256;  // channels per task
constexpr int kMaxKernel = 16;

class Convolution : public Stage {
 public:
  Convolution(const ConvolutionParams& params, const Isa& isa)
      : p_(params), isa_(isa), parts_((params.channels + kChannels - 1) / kChannels) {}
  int num_tasks(const Step& step) const override { return count_runs(step) * parts_; }
  bool may_end_before() const override { return true; }

  void run(const Step& step, int task, int, Worker&) const override {
    const Run run = find_run(step, task / parts_, p_.state_offset);
    const int channel = task % parts_ * kChannels,
              count = std::min(kChannels, p_.channels - channel);
    const int past = p_.kernel - 1;
    float before[kMaxKernel * kChannels];  // a copy of the state, which is overwritten at the end
    for (int j = 0; j < past; j++) {
      const float* from = run.state + size_t(j) * p_.channels + channel;
      if (step.positions[run.begin] == 0) memset(before + j * kChannels, 0, sizeof(float) * count);
      else memcpy(before + j * kChannels, from, sizeof(float) * count);
    }
    const auto input =
        [&](int t) -> const float* {  // t counts from the run's begin; negative t reads the state
      return t < 0 ? before + (past + t) * kChannels
                   : p_.x + size_t(run.begin + t) * p_.channels + channel;
    };
    const int length = run.end - run.begin;
    for (int t = 0; t < length; t++) {
      const float* rows[kMaxKernel];
      for (int j = 0; j < p_.kernel; j++) rows[j] = input(t - past + j);
      isa_.vectors->convolve({rows, p_.weight + channel, p_.bias ? p_.bias + channel : nullptr,
                              p_.out + size_t(run.begin + t) * p_.channels + channel, count,
                              p_.kernel, p_.channels, p_.silu != 0});
    }
    const auto leave = [&](float* state, int num_seen) {
      for (int j = 0; j < past; j++)
        memcpy(state + size_t(j) * p_.channels + channel, input(num_seen - past + j),
               sizeof(float) * count);
    };
    if (!run.after) return leave(run.state, length);
    for (int t = 0; t < length; t++) leave(run.after[t] + p_.state_offset, t + 1);
  }

 private:
  const ConvolutionParams p_;
  const Isa& isa_;
  const int parts_;
};

}  // namespace

void add_convolution(Program& program, const ConvolutionParams& p) {
  program.add<Convolution>(p, program.isa);
}

}  // namespace sharpi
