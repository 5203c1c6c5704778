// What a thread tells the scheduler, and is told by it.
#pragma once

namespace sharpi {

// Asks for short slices, once a thread, which runs briefly and waits often, and must not wait long
// for its turn. Linux 6.12 and later then lets it take over from a neighbour at once when it wakes,
// even where that one's slice of milliseconds has only begun; elsewhere it does nothing.
void prefer_short_slices();

// Lets others run that wait for this core.
void give_way();

// The core that the calling thread is on, or kNoCore where the system does not say.
constexpr int kNoCore = -1;
int current_core();

// Moves the calling thread to a core that is none of `cores`, if it is allowed one, and returns
// whether it did. It is free to be moved elsewhere afterwards. Linux may leave two threads on one
// core for tens of milliseconds while another idles.
bool leave_cores(const int* cores, int count);

}  // namespace sharpi
