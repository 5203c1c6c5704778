// The scheduler of a block's threads, and barriers of all of them.
#include "block.h"

#include <cstring>
#include <utility>

#include "fault.h"

namespace emulator {

Block block;

namespace {

Fiber scheduler;
Fiber fibers[kMaxThreads];
Fiber* idle[kMaxThreads];  // fibers that no thread has
unsigned num_idle = 0;
unsigned turn[kMaxThreads];  // the threads in the order they run
unsigned place;              // of the running thread in it
uint32_t random_state;

void end(Thread& self) {
  if (!self.has_begun) fail({"", 0}, "the thread ends without having waited for earlier launches");
  self.state = State::kDone;
  block.num_alive--;
  block.warps[self.warp()].alive &= ~(1u << self.lane());
}

// Makes the first thread that is ready from `place` on the running one; null where none is.
Thread* find_ready() {
  for (; place < block.num_threads && !faulted(); place++) {
    Thread& thread = block.threads[turn[place]];
    if (thread.state != State::kReady) continue;
    emulator_here.thread = thread.number;
    return block.running = &thread;
  }
  return block.running = nullptr;
}

// What a fiber does: it runs threads to their ends. One that has not begun follows on the same
// stack, so that threads that never wait need no switch.
void run_threads() {
  for (;;) {
    Fiber& fiber = *block.running->fiber;
    block.body.call(block.body.data);
    end(*block.running);
    place++;
    Thread* next = find_ready();
    if (next && !next->fiber) {
      next->fiber = &fiber;
    } else {
      idle[num_idle++] = &fiber;
      fiber.switch_to(next ? *next->fiber : scheduler);
    }
  }
}

// A launch that failed has left threads in the midst of what they did.
void forget_fibers() {
  for (num_idle = 0; num_idle < kMaxThreads; num_idle++) {
    idle[num_idle] = &fibers[kMaxThreads - 1 - num_idle];
    idle[num_idle]->forget();
  }
}

void begin(uint3 index, unsigned order) {
  emulator_here.block[0] = index.x, emulator_here.block[1] = index.y;
  emulator_here.block[2] = index.z;
  block.num_begun++;
  block.num_alive = block.num_threads;
  block.num_waiting = 0;
  block.began = block.synced = block.fenced = tick();
  for (Warp& warp : block.warps) warp = Warp{};
  for (unsigned i = 0; i < block.num_threads; i++) {
    Thread& thread = block.threads[i];
    thread.number = i;
    thread.state = State::kReady;
    thread.has_begun = !block.is_dependent;
    thread.fiber = nullptr;
    block.warps[thread.warp()].alive |= 1u << thread.lane();
    turn[i] = order == 1 ? block.num_threads - 1 - i : i;
  }
}

void shuffle_turns() {
  for (unsigned i = block.num_threads; i > 1; i--) {
    random_state = random_state * 1664525u + 1013904223u;
    std::swap(turn[i - 1], turn[(random_state >> 8) % i]);
  }
}

// Goes on with the first thread that is ready from `place` on; where none is, with the scheduler.
void pass_on(Fiber& from) {
  Thread* next = find_ready();
  if (!next) {
    if (&from != &scheduler) from.switch_to(scheduler);
    return;
  }
  if (!next->fiber) {
    next->fiber = idle[--num_idle];
    next->fiber->prepare(run_threads);
  }
  from.switch_to(*next->fiber);
}

// Each thread that is ready runs until it waits; whether there was one.
bool run_ready() {
  place = 0;
  while (place < block.num_threads && block.threads[turn[place]].state != State::kReady) place++;
  const bool any = place < block.num_threads;
  pass_on(scheduler);
  return any;
}

int outcome(Vote vote, unsigned count) {
  if (vote == Vote::kAll) return count == block.num_waiting;
  return vote == Vote::kAny ? count > 0 : int(count);
}

void release_barrier() {
  const Thread* first = nullptr;
  unsigned count = 0;
  for (unsigned i = 0; i < block.num_threads; i++) {
    const Thread& thread = block.threads[i];
    if (thread.state != State::kAtBarrier) continue;
    if (!first) first = &thread;
    if (!same(thread.site, first->site))
      return fault(thread.site, "threads wait at different barriers, others at line %d",
                   first->site.line);
    count += thread.value != 0;
  }
  for (unsigned i = 0; i < block.num_threads; i++) {
    Thread& thread = block.threads[i];
    if (thread.state != State::kAtBarrier) continue;
    thread.value = outcome(thread.vote, count);
    thread.state = State::kReady;
  }
  block.num_waiting = 0;
  block.synced = tick();
}

void report_deadlock() {
  for (unsigned i = 0; i < block.num_threads; i++) {
    const Thread& thread = block.threads[i];
    if (thread.state == State::kAtWarp)
      return fault(thread.site, "a warp operation waits for lanes that never come (mask %#x)",
                   thread.mask);
  }
}

}  // namespace

bool same(Site a, Site b) {
  return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

void give_way() {
  Thread& self = *block.running;
  place++;
  pass_on(*self.fiber);
}

void give_up() {
  for (;;) give_way();
}

void run_block(uint3 index, unsigned order) {
  if (index.x == 0 && index.y == 0 && index.z == 0) random_state = order * 2654435761u + 1;
  if (!num_idle) forget_fibers();
  begin(index, order);
  while (block.num_alive && !faulted()) {
    if (order > 1) shuffle_turns();
    const bool any = run_ready();
    if (faulted() || !block.num_alive) break;
    if (block.num_waiting == block.num_alive) release_barrier();
    else if (!any) report_deadlock();
  }
  if (faulted()) forget_fibers();
}

}  // namespace emulator

using emulator::block;

int emulator_barrier(emulator::Vote vote, int value, emulator::Site site) {
  emulator::Thread& self = *block.running;
  self.site = site;
  self.vote = vote;
  self.value = value;
  self.state = emulator::State::kAtBarrier;
  block.num_waiting++;
  emulator::give_way();
  return self.value;
}

emulator::Here emulator_here;

void emulator_wait_for_last_launch() { emulator::block.running->has_begun = true; }
