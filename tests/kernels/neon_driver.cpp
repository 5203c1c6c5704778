// The library's C surface for another process: a line of words is a call, a line is the answer.
//
// Arguments: descriptor, address and bytes of memory that both processes map at the same address,
// so that a pointer means the same to either.
#include <sys/auxv.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>

namespace sharpi {
struct Step;
}

extern "C" {
const char* sharpi_instruction_set(const char*);
int sharpi_matmul(const char*, int, int, const void*, int, int, const float*, int, float*);
int sharpi_dequantise(const char*, int, const void*, int, float*);
int sharpi_quantise(const char*, const float*, int, void*);
void* sharpi_pool_create(int, const void*);
void sharpi_pool_destroy(void*);
void* sharpi_program_create(const char*, int, int, int);
void sharpi_program_destroy(void*);
int sharpi_program_add(void*, int, const void*, size_t);
int64_t sharpi_program_seal(void*);
int sharpi_program_run(void*, void*, const sharpi::Step*, int);
}

namespace {

using Call = std::function<int64_t(std::istream&)>;

template <class T>
T next(std::istream& words) {
  int64_t word = 0;
  words >> word;
  if constexpr (std::is_pointer_v<T>) return reinterpret_cast<T>(word);
  else return T(word);
}

template <class Result, class... Args>
Call call(Result (*function)(Args...)) {
  return [function](std::istream& words) -> int64_t {
    const std::tuple<Args...> args{next<Args>(words)...};  // braces: from left to right
    if constexpr (std::is_void_v<Result>) return std::apply(function, args), 0;
    else return (int64_t)std::apply(function, args);
  };
}

int has_dot_product() { return getauxval(AT_HWCAP) >> 20 & 1; }

#define CALL(name) {#name, call(name)}
const std::map<std::string, Call> kCalls = {
    CALL(has_dot_product),     CALL(sharpi_instruction_set), CALL(sharpi_matmul),
    CALL(sharpi_dequantise),   CALL(sharpi_quantise),        CALL(sharpi_pool_create),
    CALL(sharpi_pool_destroy), CALL(sharpi_program_create),  CALL(sharpi_program_destroy),
    CALL(sharpi_program_add),  CALL(sharpi_program_seal),    CALL(sharpi_program_run),
};

bool map_memory(char** words) {
  void* address = reinterpret_cast<void*>(strtoull(words[1], nullptr, 10));
  return mmap(address, strtoull(words[2], nullptr, 10), PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_FIXED_NOREPLACE, atoi(words[0]), 0) == address;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4 || !map_memory(words + 1)) return 2;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream rest(line);
    std::string name;
    rest >> name;
    std::cout << kCalls.at(name)(rest) << std::endl;
  }
}
