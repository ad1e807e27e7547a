#include "lib/data/data.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/data/images.h"
#include "lib/data/index_stream.h"
#include "lib/data/language.h"
#include "lib/data/table.h"
#include "lib/io/mapped_file.h"
#include "lib/io/sha256.h"

namespace lumen::data {
namespace {

void check_range(std::string_view key, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    fail(ErrorKind::kUsage, "data: ", key, " is ", value, ", expected ", low, " to ", high);
  }
}

void check(const DataOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 40;
  check_range("batch", options.batch, 1, 1 << 24);
  check_range("seq", options.seq, 1, limits::kContext);
  check_range("max_samples", options.max_samples, 0, kMost);
  check_range("crop_padding", options.crop_padding, 0, 1024);
  check_range("image_size", options.image_size, 0, 4096);
  if (options.channels != 0 && options.channels != 1 && options.channels != 3) {
    throw DataOptionError("channels", str(options.channels, ", expected 1 (grey) or 3 (colours)"));
  }
  if (options.eval_fraction && !(*options.eval_fraction >= 0 && *options.eval_fraction < 1)) {
    fail(ErrorKind::kUsage, "data: eval_fraction is ", *options.eval_fraction,
         ", expected 0 or more and less than 1");
  }
  if (!options.eval_paths.empty() && options.eval_fraction) {
    fail(ErrorKind::kUsage,
         "data: both eval_paths and eval_fraction are given; the files of "
         "eval_paths are the evaluation data");
  }
  if (options.format != Format::kDigits && options.paths.empty()) {
    fail(ErrorKind::kUsage, "data: format ", kFormatNames[static_cast<size_t>(options.format)],
         " needs paths");
  }
}

// What a cursor belongs to: the content of the files and what makes samples of it.
std::string identity_of(const Data& data, Split split, const DataOptions& options) {
  io::Sha256 hash;
  for (const SourceFile& file : data.info.files) {
    hash.update(file.sha256.empty() ? file.path : file.sha256);
  }
  hash.update(str(kFormatNames[static_cast<size_t>(options.format)], split == Split::kTrain, ' ',
                  options.seq, ' ', options.pack, ' ', data.info.vocab_size, ' ',
                  options.digits_seed));
  return hash.hex().substr(0, 16);
}

Data open_format(const DataOptions& options, const TextTools& tools) {
  switch (options.format) {
    case Format::kMnist:
      return make_image_data(read_mnist(options), options);
    case Format::kCifar10:
      return make_image_data(read_cifar10(options), options);
    case Format::kDigits:
      return make_image_data(draw_digit_sets(options), options);
    case Format::kImages:
      return make_image_data(read_image_folders(options), options);
    case Format::kCsv:
      return open_table(options);
    default:
      return open_language(options, tools);
  }
}

}  // namespace

Data open_data(const DataOptions& options, const TextTools& tools) {
  check(options);
  Data data = open_format(options, tools);
  if (data.train->samples() == 0) {
    fail(ErrorKind::kMalformed, io::place_of(options.paths.front()), ": has nothing to learn");
  }
  if (data.eval != nullptr && data.eval->samples() == 0) data.eval.reset();
  if (!options.eval_paths.empty() && data.eval == nullptr) {
    fail(ErrorKind::kMalformed, io::place_of(options.eval_paths.front()),
         ": has nothing to evaluate on");
  }
  return data;
}

std::unique_ptr<BatchStream> make_stream(const Data& data, Split split, const DataOptions& options,
                                         ThreadPool* pool) {
  const bool training = split == Split::kTrain;
  const auto& dataset = training ? data.train : data.eval;
  if (!dataset || dataset->samples() == 0) {
    fail(ErrorKind::kUsage, "the data have no samples for ", training ? "training" : "evaluation",
         training ? "" : "; set eval_fraction or eval_paths");
  }
  StreamSettings settings;
  settings.batch = options.batch;
  settings.batches_per_step = options.batches_per_step;
  settings.shuffle = training && options.shuffle;
  settings.seed = options.seed;
  settings.last_batch = options.last_batch;
  const int64_t step = options.batch * options.batches_per_step;
  if (settings.last_batch == LastBatch::kAuto) {
    // Where no step is full fillers would only take time.
    settings.last_batch = dataset->samples() >= step ? LastBatch::kDrop : LastBatch::kKeep;
  }
  // Every sample is evaluated.
  if (!training && settings.last_batch == LastBatch::kDrop) settings.last_batch = LastBatch::kPad;
  if (settings.last_batch == LastBatch::kDrop && dataset->samples() < step) {
    fail(ErrorKind::kUsage, "the batch of ", step, " is larger than the ", dataset->samples(),
         " samples, and last_batch is drop: no batch is left");
  }
  settings.prefetch = options.prefetch;
  settings.pool = pool;
  settings.identity = identity_of(data, split, options);
  return std::make_unique<IndexStream>(dataset, std::move(settings));
}

std::unique_ptr<BatchStream> open_stream(const DataOptions& options, Split split,
                                         const TextTools& tools, DatasetInfo* info) {
  const Data data = open_data(options, tools);
  if (info != nullptr) *info = data.info;
  return make_stream(data, split, options);
}

}  // namespace lumen::data
