// What the engine (coc_engine.cpp) and the kernel side (cuda_on_cpu.h) share.
#pragma once
#include <cstddef>
#include <cstdint>
struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
struct coc_thread { uint3 tid, bid; dim3 bdim, gdim; };
#pragma GCC visibility push(default)
extern "C" {
extern coc_thread* coc_now;                // the running thread
void coc_fail(const char* what, int line);
int coc_barrier(int line, int vote, int op);
void coc_exchange(unsigned mask, const void* v, void* r, int size, int src, int line);
unsigned coc_ballot(unsigned mask, int p, int line);
void coc_syncwarp(unsigned mask, int line);
void* coc_dynamic();
int coc_run(const unsigned* d, int order, int check, void (*fn)(void*), void* arg, void (*touch)(), char* err, size_t len);
}
#pragma GCC visibility pop
