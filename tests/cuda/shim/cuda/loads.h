// Loads and stores with a hint for the caches: plain ones here. And memcpy, which NVRTC has built
// in.
#pragma once
#include <cstring>

#include "keywords.h"

template <class T>
__forceinline__ T __ldg(const T* address) {
  return *address;
}
template <class T>
__forceinline__ T __ldcs(const T* address) {
  return *address;
}
template <class T>
__forceinline__ T __ldcg(const T* address) {
  return *address;
}
template <class T>
__forceinline__ void __stcs(T* address, T value) {
  *address = value;
}
