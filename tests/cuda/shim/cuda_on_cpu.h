// What NVRTC has built in, for a C++ compiler: put before a kernel's text. Each thread of a block
// becomes a fiber (engine/), and the blocks of a grid run one after another.
#pragma once
#include "cuda/atomics.h"
#include "cuda/clock.h"
#include "cuda/export.h"
#include "cuda/floats.h"
#include "cuda/integers.h"
#include "cuda/keywords.h"
#include "cuda/loads.h"
#include "cuda/tensor_cores.h"
#include "cuda/threads.h"
#include "cuda/vector_types.h"
