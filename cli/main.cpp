#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "program.h"

namespace {

/// Threads of OpenMP spin for milliseconds after each piece of work unless they are told otherwise, which costs factors
/// on a machine that has other work, too (ocr_det, two cores, load 7: 89 ms a forward, 15 ms with this limit; nothing
/// on an idle machine). The library reads the limit before `main`, so the program starts again with it.
void limit_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (::setenv("GOMP_SPINCOUNT", "2000", 1) == 0) ::execv("/proc/self/exe", argv);
  // Where that does not work, the program is slower but right.
}

/// Runs give the same sizes back and forth: returned pages would have to be faulted in and cleared again each time (a
/// tenth of a search).
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

/// A file that may not grow further (ulimit -f) is an error of its write, as a full disk is, and no end without a word.
/// A handler, since programs that are started from here shall not inherit that it is ignored.
void survive_file_size_limit() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGXFSZ, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  limit_spinning(argv);
  survive_file_size_limit();
  keep_freed_memory();
  return ulpscope::cli::run_program(std::vector<std::string>(argv, argv + argc));
}
