// Requests to the operating system's scheduler, and the core that a thread runs on.
#pragma once
#include <cstddef>
#include <vector>

namespace sharpi {

// Asks for short time slices, once per thread: the thread runs briefly and waits often, and must
// not wait long for its turn. Linux 6.12 and later then let it preempt another thread of its core
// at once when it wakes, even where that thread's slice of milliseconds has only begun; elsewhere
// this does nothing.
void prefer_short_slices();

// Lets other threads run that wait for this core.
void give_way();

// Returns the core that the calling thread is on, or kNoCore where the system does not say.
constexpr int kNoCore = -1;
int current_core();

// Moves the calling thread to a core that is none of `cores`, if one is allowed, and returns true
// if it did. Afterwards the thread may be moved elsewhere. Linux may leave two threads on one core
// for tens of milliseconds while another core is idle.
bool leave_cores(const int* cores, int count);

// Keeps the calling thread on these cores; on any for an empty list. Returns false where the system
// refuses.
bool stay_on(const std::vector<int>& cores);

// Reads the pages that lie wholly or partly in [data, data + bytes), and moves those that are not
// on the NUMA node to it, as far as it has room. Returns 0, or the system's error number.
int place_pages(const void* data, size_t bytes, int node);

}  // namespace sharpi
