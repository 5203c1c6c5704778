// Runs the thread pool's parts on simulated processors, and prints what happened as numbers.
//
// shares SPEEDS NODES TASKS STAGES: deals STAGES stages of TASKS tasks to threads of these speeds,
// of which the pool knows nothing. Prints for the first and the last stage the time over the least
// possible and the tasks taken from others, and then each thread's fraction.
//
// pool THREADS GROUP STAGES: real threads, in groups of GROUP. Prints how often each task of the
// stages ran at least and at most, and the number of stages that began too early.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "threads/pool.h"

using namespace sharpi;

namespace {

std::vector<double> numbers(const char* text) {
  std::vector<double> values;
  std::stringstream words(text);
  for (std::string word; std::getline(words, word, ',');) values.push_back(atof(word.c_str()));
  return values;
}

struct Outcome {
  double time, stolen;
};

// Runs one stage in simulated time: the thread that is free first takes the next task.
Outcome run_stage(Shares& shares, const std::vector<double>& speeds, int tasks) {
  const int threads = int(speeds.size());
  std::vector<double> free_at(threads, 0.0);
  std::vector<bool> done(threads, false);
  double end = 0, stolen = 0;
  shares.deal(tasks);
  while (std::find(done.begin(), done.end(), false) != done.end()) {
    int next = -1, task, after;
    for (int i = 0; i < threads; i++)
      if (!done[i] && (next < 0 || free_at[i] < free_at[next])) next = i;
    if (!shares.take(next, &task, &after)) {
      if (!shares.steal(next, &task)) {
        done[next] = true;
        continue;
      }
      stolen++;
    }
    end = std::max(end, free_at[next] += 1 / speeds[next]);
  }
  shares.learn();
  return {end, stolen};
}

void simulate_shares(char** words) {
  const auto speeds = numbers(words[0]), nodes = numbers(words[1]);
  const int tasks = atoi(words[2]), stages = atoi(words[3]);
  std::vector<ThreadPlace> places;
  double total = 0;
  for (size_t i = 0; i < speeds.size(); i++) {
    places.push_back({nullptr, 0, int32_t(nodes[i]), int32_t(i / kGroupThreads), 1});
    total += speeds[i];
  }
  Shares shares(places);
  for (int i = 0; i < stages; i++) {
    const Outcome outcome = run_stage(shares, speeds, tasks);
    if (i == 0 || i + 1 == stages) printf("%g %g\n", outcome.time * total / tasks, outcome.stolen);
  }
  for (size_t i = 0; i < speeds.size(); i++) printf("%g ", shares.fraction(int(i)));
  printf("\n");
}

// Counts the runs of each task, and whether all tasks of the stage before were done.
class Counting : public Stage {
 public:
  explicit Counting(int tasks) : runs(tasks) {}
  int num_tasks(const Step&) const override { return int(runs.size()); }
  void run(const Step&, int task, int, Worker&) const override {
    if (before && before->finished.load() % before->runs.size()) too_early++;
    runs[task]++;
    finished++;
  }
  mutable std::vector<std::atomic<int>> runs;
  mutable std::atomic<size_t> finished{0};
  mutable std::atomic<int> too_early{0};
  const Counting* before = nullptr;
};

void run_pool(char** words) {
  const int threads = atoi(words[0]), group = atoi(words[1]), repeats = atoi(words[2]);
  std::vector<ThreadPlace> places;
  for (int i = 0; i < threads; i++) places.push_back({nullptr, 0, 0, i / group, 1});
  Pool pool(places);
  Stages stages;
  for (const int tasks : {1, 7, 64, 2, 1, 1, 33, 200, 1})
    stages.push_back(std::make_unique<Counting>(tasks));
  for (size_t i = 1; i < stages.size(); i++)
    static_cast<Counting&>(*stages[i]).before = static_cast<Counting*>(stages[i - 1].get());
  std::vector<Worker> workers(threads);
  const Step step{};
  int runs = 0;
  for (int i = 0; i < repeats; i++)
    for (const int used : {threads, 1, (threads + 1) / 2})
      pool.run(stages, step, used, workers), runs++;
  int least = runs, most = 0, early = 0;
  for (const auto& stage : stages) {
    const auto& counting = static_cast<Counting&>(*stage);
    early += counting.too_early;
    for (const auto& count : counting.runs)
      least = std::min<int>(least, count), most = std::max<int>(most, count);
  }
  printf("%d %d %d %d\n", runs, least, most, early);
}

}  // namespace

int main(int, char** words) {
  if (!strcmp(words[1], "shares")) simulate_shares(words + 2);
  else run_pool(words + 2);
}
