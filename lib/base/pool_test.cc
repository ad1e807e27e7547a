#include "lib/base/pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "lib/base/testing.h"

using lumen::ThreadPool;

// Checks that loop(pool, count, grain, body) calls body for every index once, in ranges that begin
// at whole grains and for which fits(begin, end, count, grain) is true.
template <class Loop, class Fits>
void check_cover(const Loop& loop, const Fits& fits) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 7, 64, 1000}) {
      for (int64_t grain : {1, 8, 100}) {
        std::vector<int> hits(count, 0);
        std::atomic<int> wrong = 0;
        loop(pool, count, grain, [&](int64_t begin, int64_t end, int thread) {
          const bool right = thread >= 0 && thread < threads && begin < end && begin % grain == 0 &&
                             fits(begin, end, count, grain);
          if (!right) ++wrong;
          for (int64_t i = begin; i < end; ++i) ++hits[i];
        });
        CHECK(wrong == 0);
        for (int hit : hits) REQUIRE(hit == 1);
      }
    }
  }
}

TEST_CASE("parallel_for covers every index once, whatever the thread count") {
  check_cover([](ThreadPool& pool, int64_t count, int64_t grain,
                 const auto& body) { pool.parallel_for(count, grain, body); },
              [](int64_t, int64_t, int64_t, int64_t) { return true; });
}

TEST_CASE("parallel_pieces covers every index once, in pieces, whoever runs them") {
  check_cover(
      [](ThreadPool& pool, int64_t count, int64_t grain, const auto& body) {
        pool.parallel_pieces(count, grain, 2 * grain, body);
      },
      [](int64_t begin, int64_t end, int64_t, int64_t grain) { return end - begin <= 2 * grain; });
}

TEST_CASE("an eighth of a thread's part is whole grains, one at least") {
  ThreadPool pool(2);
  CHECK(pool.eighth(1600, 1) == 100);
  CHECK(pool.eighth(1600, 16) == 96);
  CHECK(pool.eighth(1600, 256) == 256);
  CHECK(pool.eighth(0, 1) == 1);
}

TEST_CASE("parallel_guided covers every index once, in pieces of whole grains") {
  check_cover([](ThreadPool& pool, int64_t count, int64_t grain,
                 const auto& body) { pool.parallel_guided(count, grain, body); },
              [](int64_t, int64_t end, int64_t count, int64_t grain) {
                return end % grain == 0 || end == count;
              });
}

TEST_CASE("the pieces of parallel_guided are halves of what is left of a range") {
  for (int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    std::atomic<int64_t> longest = 0, pieces = 0;
    pool.parallel_guided(1024 * threads, 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t seen = longest; seen < end - begin;) {
        longest.compare_exchange_weak(seen, end - begin);
      }
      ++pieces;
    });
    CHECK(longest == 512);
    CHECK(pieces == 9 * threads);  // 512, 256, …, 4 and the last 4
  }
}

TEST_CASE("a thread that is held up does not hold up the pieces of its range") {
  ThreadPool pool(2);
  std::vector<int> runner(16, -1);
  std::atomic<int> done = 0;
  pool.parallel_pieces(16, 1, 1, [&](int64_t index, int64_t, int thread) {
    runner[index] = thread;
    // Whoever runs the first piece waits for all the others.
    while (index == 0 && done < 15) usleep(100);
    ++done;
  });
  for (int i = 1; i < 16; ++i) CHECK(runner[i] == 1 - runner[0]);
}

TEST_CASE("run uses every thread exactly once, many times in a row") {
  ThreadPool pool(4);
  std::vector<int> calls(4, 0);
  for (int round = 0; round < 2000; ++round) pool.run([&](int thread, int) { ++calls[thread]; });
  for (int count : calls) CHECK(count == 2000);
}

TEST_CASE("a parallel loop inside a task runs serially") {
  ThreadPool pool(2);
  std::vector<int> sums(2, 0);
  pool.run([&](int thread, int) {
    pool.parallel_for(10, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sums[thread] += static_cast<int>(i);
    });
  });
  for (int sum : sums) CHECK(sum == 45);
}

TEST_CASE("a pool of no threads is refused") {
  for (const int threads : {0, -1}) {
    const std::string message = lumen::testing::refusal(lumen::ErrorKind::kMalformed,
                                                        [&] { const ThreadPool pool(threads); });
    CHECK(lumen::testing::contains(message, "needs at least 1"));
  }
}

TEST_CASE("an idle pool uses no CPU") {
  ThreadPool pool(2);
  pool.run([](int, int) {});
  const auto microseconds = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec;
  };
  // On a crowded machine a worker may get its turn to spin late: one quiet window is enough.
  bool quiet = false;
  for (int attempt = 0; attempt < 10 && !quiet; ++attempt) {
    usleep(20000);
    const auto before = microseconds();
    usleep(100000);
    quiet = microseconds() - before < 5000;
  }
  CHECK(quiet);
}
