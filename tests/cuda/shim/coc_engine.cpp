// The engine of cuda_on_cpu.h: fibers, barriers, warp meetings and the checkers. Compiled without
// sanitizers, so its own work is never taken for the kernel's.
#include "coc_abi.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <link.h>
#include <sys/mman.h>
#include <utility>
#include <vector>
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace {
enum State : uint8_t { RUN, AT_BLOCK, AT_WARP, DONE };
struct Fiber : coc_thread {
    void* sp = nullptr;
#ifndef __x86_64__
    ucontext_t uc;
#endif
    char* stack = nullptr;
    State st = DONE;
    unsigned idx = 0, mask = 0;
    int line = 0, op = 0, vote = 0;
    alignas(16) unsigned char in[16], out[16];
};
struct Warp { unsigned arrived = 0, alive = 0, epoch = 0; };
struct Cell { uint32_t block = 0, wep = 0, rep = 0, wwarp = 0, rwarp = 0; uint16_t w = 0, r = 0; uint8_t flags = 0; };   // one byte of memory
struct Region { uintptr_t lo, hi; int kind; char name[24]; Cell* shadow = nullptr; };                                     // kind 0 read-only 1 global 2 shared 3 private
enum { WRITTEN = 1, READ = 2, MANY = 4 };

constexpr size_t STACK = 256 << 10;
Fiber* F[1024];
unsigned nF;
Fiber* pool;
Fiber S;                                   // the scheduler
Fiber* cur = &S;
Warp W[32];
std::vector<Region> R;
dim3 G, B;
uint3 bid;
unsigned n, alive, waiting, epoch, block_serial;
void (*body)(void*);
void* body_arg;
char err[512];
size_t dyn_size; char* dyn_base; 
unsigned long n_switch, n_access;
bool dead;

void set_err(const char* fmt, long a = 0, long b = 0, long c = 0) {
    if (err[0]) return;
    int k = snprintf(err, sizeof err, fmt, a, b, c);
    if (cur && cur != &S)
        snprintf(err + k, sizeof err - k, " [block %u,%u,%u thread %u,%u,%u]", bid.x, bid.y, bid.z, cur->tid.x, cur->tid.y, cur->tid.z);
}
#ifdef __x86_64__
extern "C" void coc_switch(void** save, void* load);
asm(R"(
.text
.type coc_switch,@function
coc_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
#endif
inline void go(Fiber* from, Fiber* to) {
    ++n_switch;
    cur = to; coc_now = to;
#ifdef __x86_64__
    coc_switch(&from->sp, to->sp);
#else
    swapcontext(&from->uc, &to->uc);
#endif
}
inline void park() { go(cur, &S); }
void release_block() {
    int line = -1, cnt = 0;
    for (unsigned i = 0; i < n; ++i) {
        Fiber& x = *F[i];
        if (x.st != AT_BLOCK) continue;
        if (line >= 0 && x.line != line) set_err("barrier divergence: one thread waits at line %ld, another at line %ld", line, x.line);
        line = x.line; cnt += x.vote;
    }
    for (unsigned i = 0; i < n; ++i) {
        Fiber& x = *F[i];
        if (x.st == AT_BLOCK) { x.vote = x.op == 1 ? cnt : x.op == 2 ? cnt == (int)waiting : cnt > 0; x.st = RUN; }
    }
    waiting = 0; ++epoch;
}
void fiber_main() {
    for (;;) {
        body(body_arg);
        cur->st = DONE; --alive;
        W[cur->idx >> 5].alive &= ~(1u << (cur->idx & 31));
        park();
    }
}
void make_fiber(Fiber* x) {
    if (!x->stack) {
        char* m = (char*)mmap(nullptr, STACK + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        mprotect(m, 4096, PROT_NONE);
        x->stack = m + 4096;
    }
#ifdef __x86_64__
    void** sp = (void**)(x->stack + STACK);
    *--sp = nullptr; *--sp = (void*)&fiber_main;
    for (int i = 0; i < 6; ++i) *--sp = nullptr;
    x->sp = sp;
#else
    getcontext(&x->uc);
    x->uc.uc_stack.ss_sp = x->stack; x->uc.uc_stack.ss_size = STACK; x->uc.uc_link = nullptr;
    makecontext(&x->uc, fiber_main, 0);
#endif
}
// ------------------------------------------------------------ memory and race checker
uintptr_t module_lo;
[[noreturn]] void give_up(const char* name, void* pc) {
    size_t k = strlen(err);
    if (!dead && k < sizeof err) snprintf(err + k, sizeof err - k, " in %s @pc=%#lx", name, (long)((uintptr_t)pc - module_lo));
    dead = true;
    for (;;) park();                                        // never resumed: the launch is given up
}
inline bool ordered(uint32_t ep, uint16_t t, uint32_t warp_ep) {    // an access of thread t, before, in this block
    return t == cur->idx || ep != epoch || ((t >> 5) == (cur->idx >> 5) && warp_ep != W[cur->idx >> 5].epoch);
}
void access(void* p, size_t len, bool write, void* pc) {
    ++n_access;
    if (dead || cur == &S) return;
    const uintptr_t a = (uintptr_t)p;
    if (a - (uintptr_t)cur->stack < STACK) return;
    for (Region& r : R) {
        if (a < r.lo || a >= r.hi) continue;
        if (a + len > r.hi) { set_err("%ld-byte access overruns a buffer by %ld bytes", len, a + len - r.hi); give_up(r.name, pc); return; }
        if (write && r.kind == 0) { set_err("write to a read-only buffer, offset %ld", a - r.lo); give_up(r.name, pc); return; }
        if (!r.shadow) return;
        for (size_t i = a - r.lo; i < a - r.lo + len; ++i) {
            Cell& c = r.shadow[i];
            const bool same = c.block == block_serial;
            if (!same && (r.kind == 2 || !(c.flags & WRITTEN || write))) c = Cell{};       // a new block, or only ever read
            if (!same && c.flags) { set_err("blocks race on global memory, offset %ld (now a %ld=write)", i, write); give_up(r.name, pc); return; }
            if (r.kind == 2 && !write && !(c.flags & WRITTEN)) { set_err("shared memory read before it is written, offset %ld", i); give_up(r.name, pc); return; }
            if (c.flags & WRITTEN && !ordered(c.wep, c.w, c.wwarp)) { set_err("race: thread %ld wrote this and no barrier lies between (offset %ld, now a %ld=write)", c.w, i, write); give_up(r.name, pc); return; }
            if (write && c.flags & READ && (c.flags & MANY ? c.rep == epoch : !ordered(c.rep, c.r, c.rwarp))) { set_err("race: thread %ld read this and no barrier lies between (offset %ld, now a write)", c.r, i); give_up(r.name, pc); return; }
            c.block = block_serial;
            if (write) { c.flags = (c.flags | WRITTEN) & ~(READ | MANY); c.w = (uint16_t)cur->idx; c.wep = epoch; c.wwarp = W[cur->idx >> 5].epoch; }
            else {
                if (c.flags & READ && c.rep == epoch && c.r != cur->idx) c.flags |= MANY;
                else if (c.rep != epoch) c.flags &= ~MANY;
                c.flags |= READ; c.r = (uint16_t)cur->idx; c.rep = epoch; c.rwarp = W[cur->idx >> 5].epoch;
            }
        }
        return;
    }
    set_err("%ld-byte access outside every buffer (write=%ld)", len, write); give_up("?", pc);
}
}  // namespace

#pragma GCC visibility push(default)
extern "C" {
coc_thread* coc_now;
void coc_fail(const char* what, int line) { set_err("line %ld: ", line); size_t k = strlen(err); if (k < sizeof err) snprintf(err + k, sizeof err - k, "%s", what); }
int coc_barrier(int line, int vote, int op) {
    Fiber* c = cur;
    c->line = line; c->op = op; c->vote = vote; c->st = AT_BLOCK;
    ++waiting;
    park();
    return c->vote;
}
// lanes in mask meet; afterwards each lane's 16 bytes are in its out slot
static void meet(unsigned mask, int line) {
    Fiber* c = cur;
    Warp& w = W[c->idx >> 5];
    const unsigned lane = c->idx & 31, w0 = c->idx & ~31u;
    if (!(mask >> lane & 1)) { set_err("line %ld: lane %ld calls a warp operation whose mask lacks it", line, lane); dead = true; park(); }
    if (mask & ~w.alive) { set_err("line %ld: a warp mask names lanes (%#lx) that have exited or do not exist", line, mask & ~w.alive); dead = true; park(); }
    c->mask = mask; c->line = line;
    w.arrived |= 1u << lane;
    if ((w.arrived & mask) != mask) { c->st = AT_WARP; park(); return; }
    w.arrived &= ~mask;
    for (unsigned m = mask; m; m &= m - 1) {
        Fiber& x = *F[w0 + __builtin_ctz(m)];
        if (x.mask != mask || x.line != line) { set_err("warp divergence: lanes meet at line %ld and line %ld", x.line, line); dead = true; park(); }
        memcpy(x.out, x.in, 16);
        x.st = RUN;
    }
}
void coc_exchange(unsigned mask, const void* v, void* r, int size, int src, int line) {
    memcpy(cur->in, v, size);
    meet(mask, line);
    if (src >= 0 && !(mask >> src & 1)) { set_err("line %ld: a shuffle reads lane %ld, which is not in its mask", line, src); dead = true; park(); }
    memcpy(r, src < 0 ? cur->out : F[(cur->idx & ~31u) + src]->out, size);
}
unsigned coc_ballot(unsigned mask, int p, int line) {
    memcpy(cur->in, &p, 4);
    meet(mask, line);
    unsigned r = 0;
    for (unsigned m = mask; m; m &= m - 1) { int l = __builtin_ctz(m), q; memcpy(&q, F[(cur->idx & ~31u) + l]->out, 4); r |= (unsigned)(q != 0) << l; }
    return r;
}
void coc_syncwarp(unsigned mask, int line) { meet(mask, line); ++W[cur->idx >> 5].epoch; }
void* coc_dynamic() { return dyn_base; }

void coc_clear_regions() { for (auto& r : R) free(r.shadow); R.clear(); }
void coc_region(void* p, size_t len, int kind, const char* name, int shadow) {
    Region r{(uintptr_t)p, (uintptr_t)p + len, kind, {}, nullptr};
    snprintf(r.name, sizeof r.name, "%s", name);
    if (shadow) r.shadow = (Cell*)calloc(len, sizeof(Cell));
    R.push_back(r);
}
unsigned long coc_stat(int i) { return i ? n_access : n_switch; }

struct Find { uintptr_t fn; uintptr_t lo, hi; char* tls; size_t tls_len; };
static int find_module(dl_phdr_info* i, size_t, void* v) {
    Find& f = *(Find*)v;
    bool mine = false;
    for (int k = 0; k < i->dlpi_phnum; ++k) { const auto& p = i->dlpi_phdr[k]; uintptr_t lo = i->dlpi_addr + p.p_vaddr; mine |= p.p_type == PT_LOAD && f.fn >= lo && f.fn < lo + p.p_memsz; }
    if (!mine) return 0;
    for (int k = 0; k < i->dlpi_phnum; ++k) {
        const auto& p = i->dlpi_phdr[k];
        if (p.p_type == PT_LOAD) { uintptr_t lo = i->dlpi_addr + p.p_vaddr; if (!f.lo || lo < f.lo) f.lo = lo; if (lo + p.p_memsz > f.hi) f.hi = lo + p.p_memsz; }
        if (p.p_type == PT_TLS) { f.tls = (char*)i->dlpi_tls_data; f.tls_len = p.p_memsz; }
    }
    return 1;
}
// d: grid x y z, block x y z, dynamic shared bytes. order: 0 forward, 1 backward, else a seed.
int coc_run(const unsigned* d, int order, int check, void (*fn)(void*), void* arg, void (*touch)(), char* e, size_t el) {
    G = dim3(d[0], d[1], d[2]); B = dim3(d[3], d[4], d[5]);
    n = B.x * B.y * B.z; err[0] = 0; dead = false; body = fn; body_arg = arg; cur = &S; n_switch = n_access = 0;
    if (!n || n > 1024 || B.z > 64) set_err("bad block size %ld x %ld x %ld", B.x, B.y, B.z);
    if (!G.x || !G.y || !G.z || G.y > 65535 || G.z > 65535) set_err("bad grid size %ld x %ld x %ld", G.x, G.y, G.z);
    if (d[6] > 227 * 1024) set_err("%ld bytes of dynamic shared memory", d[6]);
    if (err[0]) { snprintf(e, el, "%s", err); return 1; }
    if (!pool) pool = new Fiber[1024];
    for (; nF < n; ++nF) { F[nF] = pool + nF; F[nF]->idx = nF; make_fiber(F[nF]); }
    static char* dyn_map = (char*)mmap(nullptr, (256 << 10) + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mprotect(dyn_map + (256 << 10), 4096, PROT_NONE);
    dyn_size = d[6]; dyn_base = dyn_map + (256 << 10) - ((dyn_size + 15) & ~(size_t)15);   // ends at a guard page
    touch();                                                     // makes the module's thread-local segment exist
    Find f{(uintptr_t)fn, 0, 0, nullptr, 0};
    dl_iterate_phdr(find_module, &f);
    module_lo = f.lo;
    const size_t nreg = R.size();
    if (check) {
        coc_region(dyn_base, dyn_size, 2, "dynamic shared", 1);
        if (f.tls) coc_region(f.tls, f.tls_len, 2, "shared", 1);
        coc_region((void*)f.lo, f.hi - f.lo, 1, "module data", 0);
        coc_region(arg, 4096, 1, "arguments", 0);
        coc_region(pool, 1024 * sizeof(Fiber), 1, "threads", 0);
        coc_region(&coc_now, sizeof coc_now, 1, "now", 0);
    }
    unsigned rng = (unsigned)order * 2654435761u + 1;
    std::vector<unsigned> perm(n);
    for (unsigned bz = 0; bz < G.z && !err[0]; ++bz) for (unsigned by = 0; by < G.y && !err[0]; ++by) for (unsigned bx = 0; bx < G.x && !err[0]; ++bx) {
        bid = {bx, by, bz}; ++block_serial; ++epoch;
        alive = n; waiting = 0;
        if (f.tls) memset(f.tls, 0xff, f.tls_len);               // unset shared memory reads as NaN or -1
        memset(dyn_base, 0xff, dyn_size);
        for (unsigned i = 0; i < 32; ++i) { W[i].arrived = 0; W[i].alive = n >= 32 * i + 32 ? ~0u : n > 32 * i ? (1u << (n - 32 * i)) - 1 : 0; ++W[i].epoch; }
        for (unsigned i = 0; i < n; ++i) { Fiber& x = *F[i]; x.tid = {i % B.x, i / B.x % B.y, i / (B.x * B.y)}; x.bid = bid; x.bdim = B; x.gdim = G; x.st = RUN; perm[i] = order == 1 ? n - 1 - i : i; }
        while (alive && !err[0]) {
            if (order > 1) for (unsigned i = n; i > 1; --i) { rng = rng * 1664525u + 1013904223u; std::swap(perm[i - 1], perm[(rng >> 8) % i]); }
            bool ran = false;
            for (unsigned i = 0; i < n && !err[0]; ++i) if (F[perm[i]]->st == RUN) { ran = true; go(&S, F[perm[i]]); cur = &S; }
            if (err[0] || !alive) break;
            if (waiting && waiting == alive) release_block();
            else if (!ran) {
                int line = 0; for (unsigned i = 0; i < n; ++i) if (F[i]->st == AT_WARP) line = F[i]->line;
                set_err("deadlock: a warp operation at line %ld never gets all its lanes", line);
            }
        }
    }
    while (R.size() > nreg) { free(R.back().shadow); R.pop_back(); }
    if (err[0]) {
        for (unsigned i = 0; i < nF; ++i) { make_fiber(F[i]); F[i]->st = DONE; }       // abandons the fibers left mid-kernel
        snprintf(e, el, "%s", err);
        return 1;
    }
    return 0;
}
// ---- -fsanitize=alignment without libubsan
struct Loc { const char* file; unsigned line, col; };
struct Mismatch { Loc loc; void* type; unsigned char log_align, kind; };
void __ubsan_handle_type_mismatch_v1(Mismatch* d, uintptr_t p) {
    set_err("misaligned access at line %ld: address is %ld mod %ld", d->loc.line, p & ((1ul << d->log_align) - 1), 1ul << d->log_align);
    dead = true; if (cur != &S) for (;;) park();
}
void __ubsan_handle_pointer_overflow(void*, uintptr_t, uintptr_t) {}
// ---- -fsanitize=thread calls these before every access that is not plainly a private local's
#define PC __builtin_return_address(0)
#define COC_ACC(N)                                                                                  \
    void __tsan_read##N(void* p) { access(p, N, false, PC); } void __tsan_write##N(void* p) { access(p, N, true, PC); } \
    void __tsan_unaligned_read##N(void* p) { access(p, N, false, PC); } void __tsan_unaligned_write##N(void* p) { access(p, N, true, PC); }
COC_ACC(1) COC_ACC(2) COC_ACC(4) COC_ACC(8) COC_ACC(16)
void __tsan_read_range(void* p, size_t s) { access(p, s, false, PC); }
void __tsan_write_range(void* p, size_t s) { access(p, s, true, PC); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
