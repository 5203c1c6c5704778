// The numbers of the rules by which expert slots are filled, for all that follow these rules: the
// policies and predictors in C++, the GPU's kernels, and Python, which reads this file.
//
// sharpi/experts/slot_rules.py reads the lines `constexpr TYPE kName = VALUE;`, so that each value
// is a plain number.
#pragma once

namespace sharpi {

// The policies; PolicyKind in sharpi/experts/policy_settings.py has the same numbers.
constexpr int kSlru = 0;
constexpr int kLearnedKeep = 4;
constexpr int kLru = 5;
constexpr int kLfru = 6;
constexpr int kStatic = 8;
constexpr int kLearnedPrefetch = 10;

// All policies.
constexpr int kBatchMemory = 64;  // the last tokens of a batch, from which a policy learns
constexpr int kFirstChoice = 64;  // the part of warm_pin_after before a fixed set is first chosen

// slru and lfru: counts of uses that decay. The weight of a new use grows instead: by 2^(1/16) with
// each token for slru, so that counts halve in 16 tokens, and by 1/0.95 for lfru. At the largest
// weight all counts are scaled back.
constexpr float kSlruGrowth = 0x1.0b5586p+0f;
constexpr float kLfruGrowth = 0x1.0d7944p+0f;
constexpr float kLargestWeight = 1048576.f;
// slru: one part in so many of the slots is probationary. A use of a protected expert weighs more:
// if only probationary experts could be evicted, there would be two of eight slots to choose from,
// which costs 0.4 to 0.9 points of hit rate on recorded routes.
constexpr int kProbationaryPart = 4;
constexpr float kProtection = 1.1f;

// The learned policies. The inputs of a layer's map: the best experts of a route (more would cost
// more than they gain), from the layer and those beside it, and the last layers. Models with few
// experts have more input layers; with many, these would take too much memory.
constexpr int kRanks = 4;
constexpr int kNearLayers = 3;
constexpr int kLastLayers = 4;
constexpr int kFewExperts = 64;
constexpr int kMostLayers = 8;
constexpr int kMoreLayersWithin = 7;
constexpr int kLayersAhead = 2;  // how early a prefetch is decided
// Combinations of experts are rows of a hashed table with limits on its numbers and rows.
constexpr int kContexts = 8;
constexpr int kMostTableFloats = 262144;
constexpr int kMostTableRows = 8192;
// The learning rates of a whole map: for learned-keep, and for learned-prefetch within a token and
// ahead of it.
constexpr double kRate = 0.15;
constexpr double kRateWithin = 0.11;
constexpr double kRateAhead = 0.13;
constexpr float kDiscount = 0.8f;  // of a score that is learned from as if it were right
constexpr float kBiasRate = 0.003f;
// The first map: a layer's experts count as worth keeping for the next token until it has learned
// better.
constexpr float kFirstBias = 0.1f;
constexpr float kFirstOfItself = 0.6f;
// The rate of a hashed row, relative to that of a source: what stays, and what a new row has more.
constexpr float kHashedRate = 3.f;
constexpr float kLastingRate = 0.5f;
constexpr float kFirstRate = 3.f;
constexpr float kNewUntil = 10.f;
constexpr float kKeptOfFading = 0.97f;  // of what a fading row had learned, each time it learns
// Recent uses: the fraction of a count that remains after one token, for two spans.
constexpr int kSpans = 2;
constexpr float kKeptOfShortSpan = 0.6f;
constexpr float kKeptOfLongSpan = 0.9f;
constexpr float kRecentRate = 0.01f;

// learned-prefetch: the margin by which a prefetch has to score more than its victim.
constexpr float kFirstMargin = 0.15f;
constexpr float kMarginRate = 0.0005f;
constexpr float kThresholdRate = 0.01f;
// Prefetches pay if they save one miss for every four: a byte that is waited for was measured to
// cost 4.6 times one that is read beside computing. The fraction is an average over about 64
// prefetches.
constexpr float kLeastPaid = 0.25f;
constexpr float kPaidRate = 0.015625f;
// What prefetches may read: so that all reads are a little more than the misses that slru would
// have had; where they do not pay, a small fraction of the misses besides those that they save.
// Unused credit fades within about 16 tokens, and a token aims for a quarter of it.
constexpr float kReadsOfSlru = 1.08f;
constexpr float kExtraUnpaid = 0.01f;
constexpr float kKeptOfCredit = 0.9375f;
constexpr float kCreditOfToken = 0.25f;

// Slots that move between layers; times in tokens.
constexpr float kNeedRate = 0.001953125f;
constexpr float kNeedDifference = 0.03f;
constexpr int kMoveEvery = 64;
constexpr int kMoveAfter = 512;

// Predictors: a row of counts is halved at so many uses; and the weight of the previous token's
// route, relative to that of the layer below.
constexpr float kMostSeen = 256.f;
constexpr float kTokenWeight = 0.25f;

}  // namespace sharpi
