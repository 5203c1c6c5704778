// The size of a page of the KV cache.
#pragma once

namespace sharpi {

constexpr int kPage = 64;  // positions

}  // namespace sharpi
