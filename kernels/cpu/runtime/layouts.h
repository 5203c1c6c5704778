// Describes structs of the ABI as text: a line for each, with its name, its size, and the name and
// offset of each field. The caller compares that with its own structs when it loads the library.
#pragma once
#include <cstddef>
#include <string>

// Expands to " field offset" for each field: a macro cannot call itself, so each round of
// expansion handles one field, and 64 rounds are enough for any struct here.
#define SHARPI_PARENTHESES ()
#define SHARPI_EXPAND_4(...) __VA_ARGS__
#define SHARPI_EXPAND_3(...) \
  SHARPI_EXPAND_4(SHARPI_EXPAND_4(SHARPI_EXPAND_4(SHARPI_EXPAND_4(__VA_ARGS__))))
#define SHARPI_EXPAND_2(...) \
  SHARPI_EXPAND_3(SHARPI_EXPAND_3(SHARPI_EXPAND_3(SHARPI_EXPAND_3(__VA_ARGS__))))
#define SHARPI_EXPAND(...) \
  SHARPI_EXPAND_2(SHARPI_EXPAND_2(SHARPI_EXPAND_2(SHARPI_EXPAND_2(__VA_ARGS__))))
#define SHARPI_FIELDS(Struct, field, ...)                   \
  +" " #field " " + std::to_string(offsetof(Struct, field)) \
                        __VA_OPT__(SHARPI_MORE_FIELDS SHARPI_PARENTHESES(Struct, __VA_ARGS__))
#define SHARPI_MORE_FIELDS() SHARPI_FIELDS

// SHARPI_LAYOUT(Struct, field, field, ...): all fields, in any order.
#define SHARPI_LAYOUT(Struct, ...) \
  (std::string(#Struct " ") +      \
   std::to_string(sizeof(Struct)) SHARPI_EXPAND(SHARPI_FIELDS(Struct, __VA_ARGS__)) + "\n")
