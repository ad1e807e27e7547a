#include "lib/base/pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <numeric>
#include <vector>

#include "lib/base/testing.h"

using lumen::ThreadPool;

TEST_CASE("parallel_for covers every index once, whatever the thread count") {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 7, 64, 1000}) {
      for (int64_t grain : {1, 8, 100}) {
        std::vector<int> hits(count, 0);
        pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int) {
          for (int64_t i = begin; i < end; ++i) ++hits[i];
        });
        for (int hit : hits) REQUIRE(hit == 1);
      }
    }
  }
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

TEST_CASE("an idle pool uses no CPU") {
  ThreadPool pool(2);
  pool.run([](int, int) {});
  usleep(20000);
  rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  usleep(200000);
  getrusage(RUSAGE_SELF, &after);
  const auto microseconds = [](const rusage& r) {
    return r.ru_utime.tv_sec * 1000000 + r.ru_utime.tv_usec;
  };
  CHECK(microseconds(after) - microseconds(before) < 10000);
}
