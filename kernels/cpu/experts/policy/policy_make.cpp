// Makes the policy of a kind.
#include "learned.h"
#include "policy_ranked.h"
#include "slru.h"

namespace sharpi {

std::unique_ptr<SlotPolicy> make_policy(const PolicySettings& settings) {
  switch (settings.kind) {
    case PolicyKind::Slru: return std::make_unique<Slru>(settings);
    case PolicyKind::LearnedKeep:
    case PolicyKind::LearnedPrefetch: return std::make_unique<Learned>(settings);
    case PolicyKind::Lru: return std::make_unique<Lru>(settings);
    case PolicyKind::Lfru: return std::make_unique<Lfru>(settings);
    case PolicyKind::Static: return std::make_unique<Static>(settings);
  }
  return nullptr;
}

}  // namespace sharpi
