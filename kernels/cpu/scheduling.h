// What a thread tells the scheduler: it runs briefly and waits often, and must not wait long for its turn.
#pragma once

namespace sharpi {

// Asks for short slices, once a thread. Linux 6.12 and later then lets it take over from a neighbour at once when it wakes,
// even where that one's slice of milliseconds has only begun; elsewhere it does nothing.
void prefer_short_slices();

}  // namespace sharpi
