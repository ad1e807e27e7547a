#include "lib/base/pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/round_up.h"

namespace lumen {
namespace {

// A barrier costs about 0.3 µs; a sleep and wake-up costs 50 to 80. Spinning this long bridges the
// serial gaps inside a step: a token is chosen, a batch is copied.
constexpr double kSpinSeconds = 300e-6;

// A thread that this one waits for may need its core: from then on it is offered now and then.
constexpr int kSpinsAlone = 512, kSpinsPerYield = 64;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits a moment, for the `spin`th time; returns whether the core was offered.
bool spin_once(int spin) {
  pause_cpu();
  if (spin <= kSpinsAlone || spin % kSpinsPerYield != 0) return false;
  sched_yield();
  return true;
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

thread_local bool inside_task = false;

struct Range {
  int64_t begin, end;
};

// [0, count) in at most `threads` ranges of whole grains, as even as they can be.
struct Split {
  Split(int64_t count, int64_t grain, int threads)
      : count(count),
        grain(grain),
        grains(divide_up(count, grain)),
        parts(std::min<int64_t>(grains, threads)) {}

  Range range(int64_t part) const {
    return {grains * part / parts * grain, std::min(count, grains * (part + 1) / parts * grain)};
  }

  int64_t count, grain, grains, parts;
};

}  // namespace

struct ThreadPool::Shared {
  using Task = FunctionRef<void(int, int)>;
  struct alignas(64) Counter {
    std::atomic<int64_t> value{0};
  };

  // Generation of the current task; workers wait for it to change. Own cache lines keep the
  // workers' polling off the counters that the caller writes.
  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<int> pending{0};
  alignas(64) std::atomic<int> sleepers{0};
  const Task* task = nullptr;
  bool stop = false;
  std::vector<Counter> taken;  // of parallel_pieces: where the next piece of each range begins
  std::vector<std::thread> workers;

  void work(int thread, int threads) {
    inside_task = true;
    uint32_t seen = 0;
    for (;;) {
      seen = wait_for_change(seen);
      if (stop) return;
      (*task)(thread, threads);
      pending.fetch_sub(1, std::memory_order_release);
    }
  }

  uint32_t wait_for_change(uint32_t seen) {
    const auto begin = Clock::now();
    for (int spin = 0;; ++spin) {
      const uint32_t now = generation.load(std::memory_order_acquire);
      if (now != seen) return now;
      if (spin_once(spin) && seconds_since(begin) > kSpinSeconds) break;
    }
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    uint32_t now;
    while ((now = generation.load(std::memory_order_seq_cst)) == seen) futex_wait(generation, seen);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
    return now;
  }

  void publish() {
    generation.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) > 0) futex_wake_all(generation);
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads), shared_(std::make_unique<Shared>()) {
  if (threads < 1) fail(ErrorKind::kMalformed, "a pool of ", threads, " threads: needs at least 1");
  shared_->taken = std::vector<Shared::Counter>(static_cast<size_t>(threads));
  try {
    for (int i = 1; i < threads; ++i) {
      shared_->workers.emplace_back([this, i] { shared_->work(i, threads_); });
    }
  } catch (const std::system_error&) {
    const size_t started = shared_->workers.size() + 1;
    shared_->stop = true;
    shared_->publish();
    for (auto& worker : shared_->workers) worker.join();
    fail(ErrorKind::kResource, "cannot start ", threads, " threads, only ", started,
         "; use fewer with --threads");
  }
}

ThreadPool::~ThreadPool() {
  shared_->stop = true;
  shared_->publish();
  for (auto& worker : shared_->workers) worker.join();
}

void ThreadPool::run(FunctionRef<void(int, int)> task) {
  if (inside_task || threads_ == 1) {
    for (int i = 0; i < threads_; ++i) task(i, threads_);
    return;
  }
  Shared& shared = *shared_;
  shared.task = &task;
  shared.pending.store(threads_ - 1, std::memory_order_relaxed);
  shared.publish();
  inside_task = true;
  task(0, threads_);
  inside_task = false;
  for (int spin = 0; shared.pending.load(std::memory_order_acquire) > 0; ++spin) {
    if (spin_once(spin)) spin = kSpinsAlone;
  }
}

void ThreadPool::parallel_for(int64_t count, int64_t grain,
                              FunctionRef<void(int64_t, int64_t, int)> body) {
  if (count <= 0) return;
  const Split split(count, grain, threads_);
  if (split.parts == 1) {
    body(0, count, 0);
    return;
  }
  run([&](int thread, int) {
    if (thread >= split.parts) return;
    const auto [begin, end] = split.range(thread);
    if (begin < end) body(begin, end, thread);
  });
}

template <class StopOf>
void ThreadPool::share_out(int64_t count, int64_t grain, const StopOf& stop_of,
                           FunctionRef<void(int64_t, int64_t, int)> body) {
  if (count <= 0) return;
  const Split split(count, grain, threads_);
  // Inside a task the counters are those of the call around it.
  if (split.parts == 1 || inside_task) {
    for (int64_t at = 0, stop; at < count; at = stop) {
      stop = stop_of(at, count);
      body(at, stop, 0);
    }
    return;
  }
  std::vector<Shared::Counter>& taken = shared_->taken;
  for (int64_t part = 0; part < split.parts; ++part) {
    taken[part].value.store(split.range(part).begin, std::memory_order_relaxed);
  }
  run([&](int thread, int) {
    for (int64_t i = 0; i < split.parts; ++i) {
      const int64_t part = (thread + i) % split.parts, end = split.range(part).end;
      std::atomic<int64_t>& next = taken[part].value;
      // Only who finds something left writes to the line that all share.
      for (int64_t at = next.load(std::memory_order_relaxed); at < end;) {
        const int64_t stop = stop_of(at, end);
        if (!next.compare_exchange_weak(at, stop, std::memory_order_relaxed)) continue;
        body(at, stop, thread);
        at = next.load(std::memory_order_relaxed);
      }
    }
  });
}

int64_t ThreadPool::eighth(int64_t count, int64_t grain) const {
  return std::max<int64_t>(1, count / (8 * threads_) / grain) * grain;
}

void ThreadPool::parallel_pieces(int64_t count, int64_t grain, int64_t piece,
                                 FunctionRef<void(int64_t, int64_t, int)> body) {
  const auto stop_of = [&](int64_t at, int64_t end) { return std::min(at + piece, end); };
  share_out(count, grain, stop_of, body);
}

void ThreadPool::parallel_guided(int64_t count, int64_t grain,
                                 FunctionRef<void(int64_t, int64_t, int)> body) {
  const auto stop_of = [&](int64_t at, int64_t end) {
    return std::min(at + divide_up(divide_up(end - at, grain), 2) * grain, end);
  };
  share_out(count, grain, stop_of, body);
}

namespace {

// The cgroup's CPU quota in whole CPUs (rounded up), or INT_MAX where there is none.
int cgroup_cpus() {
  auto ratio = [](double quota, double period) {
    return quota > 0 && period > 0 ? std::max(1, static_cast<int>((quota + period - 1) / period))
                                   : INT_MAX;
  };
  if (std::ifstream file{"/sys/fs/cgroup/cpu.max"}) {  // version 2: "max 100000" or "200000 100000"
    std::string quota;
    double period = 0;
    int64_t value = 0;
    if (file >> quota >> period && parse_number(quota, value)) {
      return ratio(static_cast<double>(value), period);
    }
    return INT_MAX;
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (quota_file >> quota && period_file >> period) return ratio(quota, period);
  return INT_MAX;
}

}  // namespace

int default_thread_count() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  // Two hardware threads of one core list the same siblings: count each core once.
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = "cpu" + std::to_string(cpu);
    cores.insert(siblings);
  }
  return std::max(1, std::min(static_cast<int>(cores.size()), cgroup_cpus()));
}

}  // namespace lumen
