// The check of every access that a kernel makes.
#pragma once
#include "cells.h"
#include "regions.h"

namespace emulator {

extern Regions regions;

// Switches the checks on for a launch.
void check_accesses(bool on);

}  // namespace emulator
