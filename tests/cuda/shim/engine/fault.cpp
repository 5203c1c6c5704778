// Keeps the first fault of a launch, and stops the thread that met it.
#include "fault.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "block.h"

namespace emulator {
namespace {

Fault* target;

void keep(const char* format, va_list values) {
  vsnprintf(target->what, sizeof target->what, format, values);
  memcpy(target->block, emulator_here.block, sizeof target->block);
  target->thread = block.running ? block.running->number : 0;
  target->argument = kOwn;
}

void keep_site(Site site) {
  const char* slash = strrchr(site.file, '/');
  snprintf(target->file, sizeof target->file, "%s", slash ? slash + 1 : site.file);
  target->line = site.line;
}

}  // namespace

void expect_faults(Fault* fault) {
  target = fault;
  *target = Fault{};
}

bool faulted() { return target->what[0] != 0; }

void fault(Site site, const char* format, ...) {
  if (faulted()) return;
  va_list values;
  va_start(values, format);
  keep(format, values);
  va_end(values);
  keep_site(site);
}

void fail(Site site, const char* format, ...) {
  if (!faulted()) {
    va_list values;
    va_start(values, format);
    keep(format, values);
    va_end(values);
    keep_site(site);
  }
  give_up();
}

void fail_access(int argument, uint64_t instruction, const char* format, ...) {
  if (!faulted()) {
    va_list values;
    va_start(values, format);
    keep(format, values);
    va_end(values);
    target->argument = argument;
    target->instruction = instruction;
  }
  give_up();
}

}  // namespace emulator

void emulator_trap(emulator::Site site) { emulator::fail(site, "__trap"); }
