// Measures how long a stream waits for experts that another stream copies or the CPU computes: one
// kernel runs before the wait, and one after it. One thread.
#include "common/clock.cuh"

KERNEL __launch_bounds__(32) slot_wait_begin(int64_t* since) { *since = sharpi::nanoseconds(); }

KERNEL __launch_bounds__(32) slot_wait_end(const int64_t* since, int64_t* waited) {
  *waited += sharpi::nanoseconds() - *since;
}
