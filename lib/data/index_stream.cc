#include "lib/data/index_stream.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "lib/base/error.h"
#include "lib/data/shuffle.h"

namespace lumen::data {
namespace {

constexpr size_t kAhead = 2;  // batches that wait

int64_t count_batches(int64_t samples, const StreamSettings& settings) {
  const int64_t step = settings.batch * settings.batches_per_step;
  if (settings.last_batch == LastBatch::kDrop) return samples / step * settings.batches_per_step;
  return (samples + settings.batch - 1) / settings.batch;
}

}  // namespace

IndexStream::IndexStream(std::shared_ptr<const Dataset> dataset, StreamSettings settings)
    : dataset_(std::move(dataset)),
      settings_(std::move(settings)),
      batches_(count_batches(dataset_->samples(), settings_)) {}

IndexStream::~IndexStream() {
  stop_thread();
}

void IndexStream::make(Position position, Batch& batch, ThreadPool* pool) {
  const auto samples = static_cast<uint64_t>(dataset_->samples());
  const auto epoch = static_cast<uint64_t>(position.epoch);
  const Permutation order(samples, settings_.seed, Purpose::kOrder, epoch);
  const int64_t begin = position.batch * settings_.batch;
  const int64_t real = std::min(settings_.batch, dataset_->samples() - begin);
  const int64_t count = settings_.last_batch == LastBatch::kPad ? settings_.batch : real;
  indices_.clear();
  for (int64_t i = begin; i < begin + count; ++i) {
    const uint64_t at = static_cast<uint64_t>(i) % samples;  // fillers are the epoch's first
    indices_.push_back(static_cast<int64_t>(settings_.shuffle ? order[at] : at));
  }
  dataset_->collate({indices_.data(), count, real, settings_.seed, epoch, pool}, batch);
  batch.indices.assign(indices_.begin(), indices_.begin() + real);
}

bool IndexStream::next(Batch& batch) {
  if (position_.batch == batches_) {
    position_ = {position_.epoch + 1, 0};
    return false;
  }
  if (settings_.prefetch) {
    take_prepared(batch);
  } else {
    make(position_, batch, settings_.pool);
  }
  ++position_.batch;
  return true;
}

void IndexStream::take_prepared(Batch& batch) {
  if (!thread_.joinable()) {
    ahead_ = position_;
    try {
      thread_ = std::thread([this] { prepare_ahead(); });
    } catch (const std::system_error&) {
      return make(position_, batch, settings_.pool);  // no thread is to be had
    }
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !prepared_.empty(); });
  if (prepared_.front().error) {
    const std::exception_ptr error = prepared_.front().error;
    lock.unlock();
    stop_thread();
    std::rethrow_exception(error);
  }
  std::swap(batch, prepared_.front().batch);
  spare_.push_back(std::move(prepared_.front().batch));
  prepared_.erase(prepared_.begin());
  changed_.notify_all();
}

void IndexStream::prepare_ahead() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || prepared_.size() < kAhead; });
    if (stop_) return;
    Prepared made;
    if (!spare_.empty()) {
      made.batch = std::move(spare_.back());
      spare_.pop_back();
    }
    if (ahead_.batch == batches_) ahead_ = {ahead_.epoch + 1, 0};
    const Position position = ahead_;
    ++ahead_.batch;
    lock.unlock();
    try {
      make(position, made.batch, nullptr);
    } catch (...) {
      made.error = std::current_exception();
    }
    lock.lock();
    const bool failed = made.error != nullptr;
    prepared_.push_back(std::move(made));
    changed_.notify_all();
    if (failed) return;
  }
}

void IndexStream::stop_thread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  prepared_.clear();
  stop_ = false;
}

io::Json IndexStream::cursor() const {
  return {{"epoch", position_.epoch},       {"batch", position_.batch},
          {"samples", dataset_->samples()}, {"batch_size", settings_.batch},
          {"shuffle", settings_.shuffle},   {"seed", settings_.seed},
          {"data", settings_.identity}};
}

void IndexStream::restore(const io::Json& cursor) {
  if (!cursor.is_object()) {
    fail(ErrorKind::kMalformed, "the data cursor is ", io::describe(&cursor),
         ", expected an object");
  }
  const io::Json own = this->cursor();
  for (const char* key : {"samples", "batch_size", "shuffle", "seed", "data"}) {
    const io::Json* value = io::find(cursor, key);
    if (value == nullptr || *value != own[key]) {
      fail(ErrorKind::kMismatch, "the data cursor was made with '", key,
           "' = ", value == nullptr ? "nothing" : quoted(value->dump()), ", this run has ",
           quoted(own[key].dump()), ": it belongs to other data or another recipe");
    }
  }
  constexpr int64_t kLast = int64_t{1} << 55;  // what the streams of random numbers tell apart
  const Position position = {io::get_int(cursor, "epoch", 0, kLast),
                             io::get_int(cursor, "batch", 0, batches_)};
  stop_thread();
  position_ = position;
}

}  // namespace lumen::data
