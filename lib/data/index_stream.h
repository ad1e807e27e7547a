// The stream over a Dataset: order, batches, epochs, prefetch.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lib/data/batch.h"
#include "lib/data/data.h"

namespace lumen::data {

struct StreamSettings {
  int64_t batch = 1;
  int64_t batches_per_step = 1;  // kDrop leaves whole steps
  bool shuffle = false;
  uint64_t seed = 0;
  LastBatch last_batch = LastBatch::kKeep;  // not kAuto
  bool prefetch = false;
  ThreadPool* pool = nullptr;  // makes batches that no thread of their own makes
  std::string identity;        // what the samples are; a cursor belongs to one
};

// A batch is a pure function of the settings, the epoch and its number within it; so the cursor is
// these two numbers, and what a thread makes ahead of time can be thrown away.
class IndexStream : public BatchStream {
 public:
  // `dataset` has at least one sample.
  IndexStream(std::shared_ptr<const Dataset> dataset, StreamSettings settings);
  ~IndexStream() override;

  bool next(Batch& batch) override;
  io::Json cursor() const override;
  void restore(const io::Json& cursor) override;
  int64_t batches_per_epoch() const override { return batches_; }

 private:
  struct Position {
    int64_t epoch = 0;
    int64_t batch = 0;
  };
  struct Prepared {
    Batch batch;
    std::exception_ptr error;
  };

  void make(Position position, Batch& batch, ThreadPool* pool);
  void take_prepared(Batch& batch);
  void prepare_ahead();
  void stop_thread();

  const std::shared_ptr<const Dataset> dataset_;
  const StreamSettings settings_;
  const int64_t batches_;
  Position position_;             // of the batch that next() hands out
  std::vector<int64_t> indices_;  // of the batch being made; used by whichever thread makes it

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Prepared> prepared_;  // oldest first; guarded by mutex_, as what follows
  std::vector<Batch> spare_;
  Position ahead_;  // what the thread makes next
  bool stop_ = false;
};

}  // namespace lumen::data
