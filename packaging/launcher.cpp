// The `sharpi` command: starts Python with Ctrl-C held back until sharpi can take it.
//
// A SIGINT that arrives while Python itself starts prints a traceback, for some 10 ms. So this
// program blocks the signal, and sharpi/cli/start.py lets it through. The installer of the wheel
// writes `.sharpi-python` beside it, whose first line names the environment's Python.
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace {

constexpr char SCRIPT[] = ".sharpi-python";
constexpr int NOT_FOUND = 127;

// What keeps a script that is there from running.
int fault = 0;
char faulty[PATH_MAX];

// Writes the path of `name`, which is relative to the folder of the file `path`; false if it is too
// long.
bool join(char (&joined)[PATH_MAX], const char* path, const char* name) {
  const char* slash = name[0] == '/' ? nullptr : strrchr(path, '/');
  const int folder = slash ? static_cast<int>(slash - path) + 1 : 0;
  return snprintf(joined, PATH_MAX, "%.*s%s", folder, path, name) < PATH_MAX;
}

void start_beside(const char* path, char** arguments) {
  char script[PATH_MAX];
  if (!join(script, path, SCRIPT)) return;
  execv(script, arguments);
  const int error = errno;
  if (access(script, F_OK) == 0) {
    fault = error;
    memcpy(faulty, script, sizeof faulty);
  }
}

// Replaces this process by the script beside the file that `path` links to, else beside the link:
// pipx and uv link to an environment's programs, and uv may link these to its store.
void start(const char* path, char** arguments) {
  char target[PATH_MAX], linked[PATH_MAX];
  const ssize_t length = readlink(path, target, sizeof target - 1);
  if (length > 0) {
    target[length] = '\0';
    if (join(linked, path, target)) start(linked, arguments);
  }
  start_beside(path, arguments);
}

}  // namespace

int main(int, char** arguments) {
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_BLOCK, &interrupt, nullptr);
  // As the system was told to start it; the other is one for programs that load programs.
  if (const auto path = reinterpret_cast<const char*>(getauxval(AT_EXECFN))) start(path, arguments);
  start("/proc/self/exe", arguments);
  if (fault)
    fprintf(stderr, "error: %s or its Python cannot be started: %s; install sharpi again\n", faulty,
            strerror(fault));
  else
    fprintf(stderr,
            "error: %s is missing beside this program; link to it instead of copying it, or "
            "install sharpi again\n",
            SCRIPT);
  return NOT_FOUND;
}
