#include <pthread.h>

#include <algorithm>
#include <numeric>

#include "lib/base/testing.h"
#include "lib/data/batch_arrays.h"
#include "lib/data/index_stream.h"

namespace lumen::data {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;

// Samples whose content is their own number, and the epoch.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t count, int64_t fails_at = -1) : count_(count), fails_at_(fails_at) {}
  int64_t samples() const override { return count_; }
  void collate(const Request& request, Batch& batch) const override {
    auto y = writable<int32_t>(batch, "y", {request.count});
    for (int64_t i = 0; i < request.count; ++i) {
      if (request.indices[i] == fails_at_) fail(ErrorKind::kIo, "sample ", fails_at_);
      y[static_cast<size_t>(i)] =
          i < request.real ? static_cast<int32_t>(request.indices[i] +
                                                  1000 * static_cast<int64_t>(request.epoch))
                           : kIgnored;
    }
    batch.samples = request.real;
    batch.tokens = static_cast<double>(request.real);
  }

 private:
  int64_t count_, fails_at_;
};

using Values = std::vector<int32_t>;

StreamSettings settings_of(int64_t batch, LastBatch last, bool shuffle, bool prefetch) {
  StreamSettings settings;
  settings.batch = batch;
  settings.last_batch = last;
  settings.shuffle = shuffle;
  settings.prefetch = prefetch;
  settings.seed = 9;
  settings.identity = "numbers";
  return settings;
}

// The next `calls` results of next(); an empty vector where an epoch ended.
std::vector<Values> take(BatchStream& stream, int calls) {
  std::vector<Values> taken;
  Batch batch;
  for (int i = 0; i < calls; ++i) {
    taken.emplace_back();
    if (!stream.next(batch)) continue;
    const auto y = batch.fields.at("y").as<int32_t>();
    taken.back().assign(y.begin(), y.end());
  }
  return taken;
}

TEST_CASE("evaluation goes through the samples in order") {
  for (const bool prefetch : {false, true}) {
    const auto data = std::make_shared<Numbers>(5);
    IndexStream keep(data, settings_of(2, LastBatch::kKeep, false, prefetch));
    CHECK(keep.batches_per_epoch() == 3);
    CHECK(take(keep, 5) == std::vector<Values>{{0, 1}, {2, 3}, {4}, {}, {1000, 1001}});
    IndexStream pad(data, settings_of(2, LastBatch::kPad, false, prefetch));
    CHECK(take(pad, 4) == std::vector<Values>{{0, 1}, {2, 3}, {4, kIgnored}, {}});
    IndexStream drop(data, settings_of(2, LastBatch::kDrop, false, prefetch));
    CHECK(take(drop, 4) == std::vector<Values>{{0, 1}, {2, 3}, {}, {1000, 1001}});
  }
}

TEST_CASE("a batch says how many of its samples count") {
  IndexStream stream(std::make_shared<Numbers>(5), settings_of(4, LastBatch::kPad, true, false));
  Batch batch;
  REQUIRE(stream.next(batch));
  CHECK(batch.samples == 4);
  REQUIRE(stream.next(batch));
  CHECK(batch.samples == 1);
  CHECK(batch.tokens == 1);
  CHECK(batch.fields.at("y").shape() == Shape{4});
}

TEST_CASE("an epoch has every sample once, in an order of its own") {
  IndexStream stream(std::make_shared<Numbers>(100), settings_of(10, LastBatch::kDrop, true, true));
  Values before;
  for (int epoch = 0; epoch < 3; ++epoch) {
    Values all;
    for (const Values& batch : take(stream, 11)) all.insert(all.end(), batch.begin(), batch.end());
    for (int32_t& value : all) value -= 1000 * epoch;
    CHECK(all != before);
    before = all;
    std::sort(all.begin(), all.end());
    Values expected(100);
    std::iota(expected.begin(), expected.end(), 0);
    CHECK(all == expected);
  }
}

TEST_CASE("a cursor continues with the batches that would have followed") {
  const auto data = std::make_shared<Numbers>(23);
  for (const LastBatch last : {LastBatch::kKeep, LastBatch::kPad, LastBatch::kDrop}) {
    IndexStream reference(data, settings_of(4, last, true, false));
    const auto all = take(reference, 40);
    for (int stop = 0; stop < 20; ++stop) {
      for (const bool prefetch : {false, true}) {
        IndexStream first(data, settings_of(4, last, true, prefetch));
        take(first, stop);
        const io::Json cursor = io::Json::parse(first.cursor().dump());  // as a file keeps it
        IndexStream second(data, settings_of(4, last, true, prefetch));
        take(second, 3);  // where it stood before must not matter
        second.restore(cursor);
        CHECK(second.cursor() == cursor);
        const auto rest = take(second, 15);
        CHECK(rest == std::vector<Values>(all.begin() + stop, all.begin() + stop + 15));
      }
    }
  }
}

TEST_CASE("a cursor of other data or settings is refused") {
  IndexStream stream(std::make_shared<Numbers>(23), settings_of(4, LastBatch::kKeep, true, true));
  io::Json cursor = stream.cursor();
  cursor["seed"] = 10;
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { stream.restore(cursor); }),
                 "'seed' = '10', this run has '9'"));
  cursor = stream.cursor();
  cursor["data"] = "letters";
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { stream.restore(cursor); }), "letters"));
  cursor = stream.cursor();
  cursor["batch"] = 7;
  refusal(ErrorKind::kMalformed, [&] { stream.restore(cursor); });
  cursor["batch"] = -1;
  refusal(ErrorKind::kMalformed, [&] { stream.restore(cursor); });
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { stream.restore("x"); }), "an object"));
  cursor = stream.cursor();
  cursor.erase("samples");
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { stream.restore(cursor); }), "= nothing"));
}

TEST_CASE("an error met ahead of time is thrown when its batch is due") {
  for (const bool prefetch : {false, true}) {
    IndexStream stream(std::make_shared<Numbers>(10, 5),
                       settings_of(2, LastBatch::kKeep, false, prefetch));
    CHECK(take(stream, 2) == std::vector<Values>{{0, 1}, {2, 3}});
    Batch batch;
    for (int again = 0; again < 2; ++again) {
      CHECK(contains(refusal(ErrorKind::kIo, [&] { stream.next(batch); }), "sample 5"));
    }
  }
}

#ifdef __GLIBC__
TEST_CASE("without a thread to prefetch the batches are the same") {
  pthread_attr_t usual, huge;
  REQUIRE(::pthread_getattr_default_np(&usual) == 0);
  REQUIRE(::pthread_getattr_default_np(&huge) == 0);
  REQUIRE(::pthread_attr_setstacksize(&huge, size_t{1} << 50) == 0);  // of memory nobody has
  REQUIRE(::pthread_setattr_default_np(&huge) == 0);
  IndexStream stream(std::make_shared<Numbers>(10), settings_of(2, LastBatch::kKeep, false, true));
  const std::vector<Values> taken = take(stream, 3);
  REQUIRE(::pthread_setattr_default_np(&usual) == 0);
  CHECK(taken == std::vector<Values>{{0, 1}, {2, 3}, {4, 5}});
  CHECK(take(stream, 2) == std::vector<Values>{{6, 7}, {8, 9}});  // now with one
}
#endif

TEST_CASE("a stream can be dropped while it prefetches") {
  for (int i = 0; i < 50; ++i) {
    IndexStream stream(std::make_shared<Numbers>(1000),
                       settings_of(7, LastBatch::kPad, true, true));
    take(stream, i % 4);
  }
}

TEST_CASE("a steady state reuses the arrays it is given back") {
  for (const bool prefetch : {false, true}) {
    IndexStream stream(std::make_shared<Numbers>(1000),
                       settings_of(8, LastBatch::kDrop, true, prefetch));
    Batch batch;
    std::vector<const std::byte*> seen;
    for (int i = 0; i < 50; ++i) {
      stream.next(batch);
      const std::byte* data = batch.fields.at("y").data();
      if (std::find(seen.begin(), seen.end(), data) == seen.end()) seen.push_back(data);
    }
    CHECK(seen.size() <= (prefetch ? 4 : 1));
  }
}

}  // namespace
}  // namespace lumen::data
