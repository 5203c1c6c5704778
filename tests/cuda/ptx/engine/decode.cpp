// Takes opcodes apart.
#include <cfenv>
#include <map>

#include "machine.h"

namespace ptx {
namespace {

const std::map<std::string, Type> kTypes = {
    {"s8", Type::s8},   {"u8", Type::u8},       {"b8", Type::b8},     {"s16", Type::s16},
    {"u16", Type::u16}, {"b16", Type::b16},     {"s32", Type::s32},   {"u32", Type::u32},
    {"b32", Type::b32}, {"s64", Type::s64},     {"u64", Type::u64},   {"b64", Type::b64},
    {"f16", Type::f16}, {"f16x2", Type::f16x2}, {"bf16", Type::bf16}, {"bf16x2", Type::bf16x2},
    {"f32", Type::f32}, {"f64", Type::f64},     {"pred", Type::pred}};

const std::map<std::string, int> kRoundings = {
    {"rn", FE_TONEAREST}, {"rni", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rzi", FE_TOWARDZERO},
    {"rm", FE_DOWNWARD},  {"rmi", FE_DOWNWARD},  {"rp", FE_UPWARD},     {"rpi", FE_UPWARD}};

const std::map<std::string, Space> kSpaces = {{"global", Space::global},
                                              {"shared", Space::shared},
                                              {"local", Space::local},
                                              {"param", Space::param}};

void note(Op& op, const std::string& part) {
  if (const auto found = kTypes.find(part); found != kTypes.end())
    op.types.push_back(found->second);
  if (const auto found = kRoundings.find(part); found != kRoundings.end())
    op.rounding = found->second;
  if (const auto found = kSpaces.find(part); found != kSpaces.end()) op.space = found->second;
  if (part == "ftz") op.ftz = true;
  if (part == "sat") op.sat = true;
  if (part == "v2") op.vector = 2;
  if (part == "v4") op.vector = 4;
}

}  // namespace

int bytes_of(Type type) {
  switch (type) {
    case Type::s8:
    case Type::u8:
    case Type::b8: return 1;
    case Type::s16:
    case Type::u16:
    case Type::b16:
    case Type::f16:
    case Type::bf16: return 2;
    case Type::s64:
    case Type::u64:
    case Type::b64:
    case Type::f64: return 8;
    case Type::pred: return 1;
    default: return 4;
  }
}

bool is_signed(Type type) {
  return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64;
}

bool only(const Op& op, std::initializer_list<const char*> words) {
  for (size_t n = 1; n < op.parts.size(); n++) {
    bool known = kTypes.count(op.parts[n]) != 0;
    for (const char* word : words) known = known || op.parts[n] == word;
    if (!known) return false;
  }
  return true;
}

bool decode(const std::string& name, Op& out) {
  Op op;
  op.name = name;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = name.find('.', begin);
    op.parts.push_back(name.substr(begin, end == std::string::npos ? end : end - begin));
    if (op.parts.size() > 1) note(op, op.parts.back());
    begin = end == std::string::npos ? name.size() + 1 : end + 1;
  }
  for (const auto knows :
       {decode_integers, decode_bits, decode_floats, decode_compares, decode_conversions,
        decode_memory, decode_atomics, decode_warp, decode_tensor_cores, decode_control}) {
    out = op;
    if (knows(out)) return true;
  }
  return false;
}

}  // namespace ptx
