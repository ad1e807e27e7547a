// The thread pool: fork-join over a fixed set of threads, no allocation per call.
#pragma once

#include <cstdint>
#include <memory>

#include "lib/base/function_ref.h"

namespace lumen {

// A fixed team of threads, the caller being thread 0. Work is split by thread index, so which
// thread computes what does not depend on timing, but for parallel_pieces; kernels split so that
// results do not depend on the number of threads either. Workers spin for some 300 µs after a
// call (a decode step issues hundreds of calls in a row) and then sleep in the kernel: an idle pool
// uses no CPU.
//
// One caller at a time: a pool is not itself thread-safe. Calls from inside a task run serially.
class ThreadPool {
 public:
  // `threads` ≥ 1 including the caller. Throws Error(kMalformed) unless, kResource if a thread
  // cannot be started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Runs task(thread, threads) once on every thread and returns when all are done.
  // The task must not throw.
  void run(FunctionRef<void(int thread, int threads)> task);

  // Splits [0, count) into at most `threads` contiguous ranges, each a multiple of `grain`
  // (except the last), and runs body(begin, end, thread) for the non-empty ones. Runs on the
  // caller alone when there is only one range.
  void parallel_for(int64_t count, int64_t grain,
                    FunctionRef<void(int64_t begin, int64_t end, int thread)> body);

  // The same, each range in pieces of `piece` from its beginning on; a thread that is done with its
  // own takes pieces of the others, so that one that the system holds up does not hold up the rest.
  // Which thread runs a piece depends on timing: the results must not depend on the thread.
  void parallel_pieces(int64_t count, int64_t grain, int64_t piece,
                       FunctionRef<void(int64_t begin, int64_t end, int thread)> body);
  // A length for such pieces: an eighth of a range, in whole grains, at least one. Small enough for
  // others to take over, long enough to be read in one go.
  int64_t eighth(int64_t count, int64_t grain) const;

  // The same in shrinking pieces of whole grains: a thread takes half of what is left of a range,
  // so that its own is read in a few long pieces and the last ones to be shared out are short.
  void parallel_guided(int64_t count, int64_t grain,
                       FunctionRef<void(int64_t begin, int64_t end, int thread)> body);

 private:
  struct Shared;
  // Runs body for the pieces of every range; stop_of(at, end) is where the piece that begins at
  // `at` of a range that ends at `end` stops.
  template <class StopOf>
  void share_out(int64_t count, int64_t grain, const StopOf& stop_of,
                 FunctionRef<void(int64_t begin, int64_t end, int thread)> body);

  int threads_;
  std::unique_ptr<Shared> shared_;
};

// Threads to use when the user does not say: physical cores ∩ affinity mask ∩ cgroup CPU quota,
// at least 1. LUMEN_THREADS and OMP_NUM_THREADS are the tools' business, not read here.
int default_thread_count();

}  // namespace lumen
