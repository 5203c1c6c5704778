// The most experts that a layer may have.
#pragma once

namespace sharpi {

constexpr int kMaxExperts = 512;

}  // namespace sharpi
