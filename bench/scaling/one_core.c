// A stand-in for libgomp, loaded before it (LD_PRELOAD), that runs the threads of each parallel region one after the
// other and makes the clock show the time of the longest one: what a program takes on as many cores as it asks for,
// measured on one. It sees how evenly work is shared, and what nobody shares. It does not see what cores do to each
// other: memory bandwidth, caches, clock rates.
//
// The parts of the GNU OpenMP ABI that oneDNN and ulpscope use. Environment: SCALING_CORES, how many there seem to be;
// SCALING_REGION_NS, what beginning and ending a region is taken to cost.
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int cores = 16, chosen = 16;   // Cores, and threads that a region gets.
static long region_cost = 0;          // Nanoseconds.
static long hidden = 0, regions = 0;  // Nanoseconds that the clock leaves out.

// Where this program is: in thread `index` of `size`, `depth` regions deep (those inside of others have one thread).
static int depth = 0, index_of_thread = 0, size_of_team = 1, chosen_inside = 1;

static long number(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text != NULL ? atol(text) : otherwise;
}

__attribute__((constructor)) static void begin(void) {
  cores = chosen = (int)number("SCALING_CORES", cores);
  region_cost = number("SCALING_REGION_NS", region_cost);
}

__attribute__((destructor)) static void end(void) { fprintf(stderr, "%ld regions of several threads\n", regions); }

static long now(void) {
  struct timespec t;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

int clock_gettime(clockid_t clock, struct timespec* t) {
  const int result = (int)syscall(SYS_clock_gettime, clock, t);
  if (clock != CLOCK_MONOTONIC) return result;
  const long shown = t->tv_sec * 1000000000L + t->tv_nsec - hidden;
  t->tv_sec = shown / 1000000000L;
  t->tv_nsec = shown % 1000000000L;
  return result;
}

int get_nprocs(void) { return cores; }
int omp_get_num_procs(void) { return cores; }
int omp_get_max_threads(void) { return depth > 0 ? chosen_inside : chosen; }
void omp_set_num_threads(int count) { *(depth > 0 ? &chosen_inside : &chosen) = count; }
int omp_get_thread_num(void) { return depth == 1 ? index_of_thread : 0; }
int omp_get_num_threads(void) { return depth == 1 ? size_of_team : 1; }
int omp_in_parallel(void) { return depth > 0 && size_of_team > 1; }
int omp_get_proc_bind(void) { return 1; }  // The user places threads.
void GOMP_barrier(void) {
  fputs("a barrier inside of a region: its threads cannot run one after the other\n", stderr);
  abort();
}

// The region at depth 1.
static long longest, all, started;

static void run_thread(void (*function)(void*), void* data, int index) {
  index_of_thread = index;
  chosen_inside = chosen;
  const long start = now();
  function(data);
  const long taken = now() - start;
  all += taken;
  if (taken > longest) longest = taken;
}

static void finish(void) {
  depth = 0;
  if (size_of_team > 1) {
    hidden += all - longest - region_cost;
    ++regions;
  }
  size_of_team = 1;
}

// What compilers before GCC 4.9 call: the caller runs the first thread itself between start and end.
void GOMP_parallel_start(void (*function)(void*), void* data, unsigned threads) {
  if (++depth > 1) return;
  size_of_team = threads != 0 ? (int)threads : chosen;
  longest = all = 0;
  for (int i = 1; i < size_of_team; ++i) run_thread(function, data, i);
  index_of_thread = 0;
  chosen_inside = chosen;
  started = now();
}

void GOMP_parallel_end(void) {
  if (depth > 1) {
    --depth;
    return;
  }
  const long taken = now() - started;
  all += taken;
  if (taken > longest) longest = taken;
  finish();
}

void GOMP_parallel(void (*function)(void*), void* data, unsigned threads, unsigned flags) {
  (void)flags;
  if (++depth > 1) {
    function(data);
    --depth;
    return;
  }
  size_of_team = threads != 0 ? (int)threads : chosen;
  longest = all = 0;
  for (int i = 0; i < size_of_team; ++i) run_thread(function, data, i);
  finish();
}

// Loops with a static schedule: their bounds, step, chunk, and how many chunks this thread has had.
static long loop_begin, loop_end, loop_step, loop_chunk, loop_taken;

bool GOMP_loop_static_next(long* first, long* last) {
  const long threads = omp_get_num_threads(), index = omp_get_thread_num();
  const long span = loop_step > 0 ? loop_end - loop_begin : loop_begin - loop_end;
  const long width = loop_step > 0 ? loop_step : -loop_step;
  const long count = span > 0 ? (span + width - 1) / width : 0;
  long from, to;
  if (loop_chunk == 0) {
    if (loop_taken++ > 0) return false;
    const long share = count / threads, rest = count % threads;
    from = index * share + (index < rest ? index : rest);
    to = from + share + (index < rest ? 1 : 0);
  } else {
    from = (loop_taken++ * threads + index) * loop_chunk;
    to = from + loop_chunk < count ? from + loop_chunk : count;
  }
  if (from >= to) return false;
  *first = loop_begin + from * loop_step;
  *last = loop_begin + to * loop_step;
  return true;
}

bool GOMP_loop_static_start(long begin_at, long end_at, long step, long chunk, long* first, long* last) {
  loop_begin = begin_at;
  loop_end = end_at;
  loop_step = step;
  loop_chunk = chunk;
  loop_taken = 0;
  return GOMP_loop_static_next(first, last);
}

void GOMP_loop_end_nowait(void) {}
