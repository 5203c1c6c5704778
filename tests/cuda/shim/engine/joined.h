// Blocks that have arrived at a counter: what they did before comes before what the last block does
// after it.
#pragma once
#include <cstdint>

namespace emulator {

// Whether what another block did at `stamp`, or several other blocks did, the last of them then,
// comes before what the running block does now.
bool is_joined(uint32_t stamp, bool by_several);

// Forgets all blocks, at the begin of a launch.
void forget_arrivals();

}  // namespace emulator
