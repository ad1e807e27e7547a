#include "lib/kernels/peak.h"

#include <vector>

#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"

using namespace lumen;

TEST_CASE("memory is read to the last word, whatever the threads") {
  std::vector<uint64_t> words(8 * 101);
  uint64_t want = 0;
  for (size_t i = 0; i < words.size(); ++i) want += words[i] = i * i + 7;
  const auto* data = reinterpret_cast<const std::byte*>(words.data());
  kernels::on_every_target([&] {
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      CHECK(kernels::read_memory(pool, data, words.size() * sizeof(uint64_t)) == want);
      CHECK(kernels::read_memory(pool, data, 0) == 0);
    }
  });
}

TEST_CASE("multiply-adds are counted per round, lane and thread") {
  kernels::on_every_target([&] {
    ThreadPool one(1), three(3);
    const double round = kernels::multiply_add(one, 1);
    CHECK(round >= 20);  // ten chains of at least one lane, two operations each
    CHECK(kernels::multiply_add(one, 1000) == 1000 * round);
    CHECK(kernels::multiply_add(three, 1000) == 3000 * round);
  });
}
