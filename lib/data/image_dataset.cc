#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "lib/base/error.h"
#include "lib/base/prefetch.h"
#include "lib/data/batch_arrays.h"
#include "lib/data/images.h"
#include "lib/data/shuffle.h"

namespace lumen::data {
namespace {

using Histogram = std::array<int64_t, 256>;

struct Augmentation {
  int64_t padding = 0;
  bool flip = false;
};

// How one image is shown in one epoch: moved by (dy, dx), then mirrored.
struct View {
  int64_t dy = 0, dx = 0;
  bool mirrored = false;
};

View view_of(const Augmentation& augmentation, uint64_t seed, uint64_t epoch, int64_t sample) {
  const auto words =
      random_stream(seed, Purpose::kAugment, epoch).block(static_cast<uint64_t>(sample));
  const auto places = static_cast<uint64_t>(2 * augmentation.padding + 1);
  const auto offset = [&](uint32_t word) {
    return static_cast<int64_t>(word * places >> 32) - augmentation.padding;
  };
  return {offset(words[0]), offset(words[1]), augmentation.flip && (words[2] & 1) != 0};
}

// out[i] = levels[pixels[i]]. Eight of the same level, as backgrounds have, are one number.
void write_levels(const uint8_t* pixels, int64_t count, const Levels& levels, float* out) {
  int64_t i = 0;
  for (uint64_t eight; i + 8 <= count; i += 8) {
    std::memcpy(&eight, pixels + i, 8);
    if (eight == pixels[i] * 0x0101010101010101u) {
      std::fill_n(out + i, 8, levels[pixels[i]]);
    } else {
      for (int64_t j = i; j < i + 8; ++j) out[j] = levels[pixels[j]];
    }
  }
  for (; i < count; ++i) out[i] = levels[pixels[i]];
}

class ImageDataset : public Dataset {
 public:
  ImageDataset(std::shared_ptr<const LabelledImages> images, std::vector<int64_t> selected,
               std::vector<Levels> levels, Augmentation augmentation)
      : images_(std::move(images)),
        selected_(std::move(selected)),
        levels_(std::move(levels)),
        augmentation_(augmentation) {}

  int64_t samples() const override { return static_cast<int64_t>(selected_.size()); }

  void collate(const Request& request, Batch& batch) const override {
    const LabelledImages& images = *images_;
    float* const x =
        writable<float>(batch, "x", {request.count, images.channels, images.height, images.width})
            .data();
    int32_t* const y = writable<int32_t>(batch, "y", {request.count}).data();
    if (request.pool == nullptr) {
      write_rows(request, 0, request.count, x, y);
    } else {
      const int64_t grain = std::max<int64_t>(1, kGrainPixels / images.pixels_per_image());
      request.pool->parallel_for(request.count, grain, [&](int64_t begin, int64_t end, int) {
        write_rows(request, begin, end, x, y);
      });
    }
    batch.samples = request.real;
    batch.tokens = static_cast<double>(request.real);
  }

 private:
  static constexpr int64_t kGrainPixels = 16384;  // that are worth a thread

  void write_rows(const Request& request, int64_t begin, int64_t end, float* x, int32_t* y) const {
    const int64_t pixels = images_->pixels_per_image();
    const auto image_at = [&](int64_t i) { return selected_[request.indices[i]]; };
    const auto pixels_of = [&](int64_t i) { return images_->pixels.data() + image_at(i) * pixels; };
    for (int64_t i = begin; i < end; ++i) {
      // The images of a batch lie anywhere: the next is fetched while this one is converted. What
      // follows the first page of a large one the processor foresees.
      if (i + 1 < end) prefetch(pixels_of(i + 1), std::min<int64_t>(pixels, 4096));
      y[i] = i < request.real ? images_->labels[image_at(i)] : kIgnored;
      const View view = view_of(augmentation_, request.seed, request.epoch, request.indices[i]);
      write_image(pixels_of(i), view, x + i * pixels);
    }
  }

  void write_image(const uint8_t* pixels, const View& view, float* out) const {
    const int64_t plane = images_->height * images_->width;
    const bool plain = view.dy == 0 && view.dx == 0 && !view.mirrored;
    for (const Levels& levels : levels_) {
      if (plain) {
        write_levels(pixels, plane, levels, out);
      } else {
        write_view(pixels, view, levels, out);
      }
      pixels += plane;
      out += plane;
    }
  }

  void write_view(const uint8_t* pixels, const View& view, const Levels& levels, float* out) const {
    const int64_t height = images_->height, width = images_->width;
    for (int64_t row = 0; row < height; ++row) {
      const int64_t from_row = row + view.dy;
      for (int64_t column = 0; column < width; ++column) {
        const int64_t from = (view.mirrored ? width - 1 - column : column) + view.dx;
        const bool inside = from_row >= 0 && from_row < height && from >= 0 && from < width;
        *out++ = levels[inside ? pixels[from_row * width + from] : 0];
      }
    }
  }

  std::shared_ptr<const LabelledImages> images_;
  std::vector<int64_t> selected_;
  std::vector<Levels> levels_;
  Augmentation augmentation_;
};

// Mean and standard deviation of every channel of the selected images, exact up to the last
// rounding because pixels are counted.
void measure(const LabelledImages& images, const std::vector<int64_t>& selected,
             std::vector<double>& mean, std::vector<double>& deviation) {
  for (int64_t c = 0; c < images.channels; ++c) {
    Histogram counts{};
    const int64_t pixels = images.height * images.width;
    for (const int64_t image : selected) {
      const uint8_t* from = images.pixels.data() + image * images.pixels_per_image() + c * pixels;
      for (int64_t i = 0; i < pixels; ++i) ++counts[from[i]];
    }
    double count = 0, sum = 0, squares = 0;
    for (size_t level = 0; level < counts.size(); ++level) {
      const double value = static_cast<double>(level) / 255, n = static_cast<double>(counts[level]);
      count += n, sum += n * value, squares += n * value * value;
    }
    const double average = count > 0 ? sum / count : 0;
    const auto is_there = [](int64_t n) { return n > 0; };
    const bool varies = std::count_if(counts.begin(), counts.end(), is_there) > 1;
    const double variance = count > 0 ? std::max(0.0, squares / count - average * average) : 1;
    mean.push_back(average);
    // A channel of one level has none but that of rounding.
    deviation.push_back(varies && variance > 0 ? std::sqrt(variance) : 1);
  }
}

void check_normalization(const DataOptions& options, int64_t channels) {
  for (const auto* values : {&options.mean, &options.std}) {
    if (!values->empty() && static_cast<int64_t>(values->size()) != channels) {
      throw DataOptionError(
          values == &options.mean ? "mean" : "std",
          str(values->size(), values->size() == 1 ? " number" : " numbers", ", the images have ",
              channels, channels == 1 ? " channel" : " channels"));
    }
  }
  for (const double value : options.std) {
    if (!(value > 0)) throw DataOptionError("std", str("the number ", value, ", expected > 0"));
  }
}

std::vector<int64_t> all_of(int64_t count, int64_t max_samples, uint64_t seed) {
  return split_indices(count, 0, max_samples, seed).train;
}

}  // namespace

Levels levels_of(double mean, double deviation) {
  Levels levels;
  for (size_t i = 0; i < levels.size(); ++i) {
    levels[i] = static_cast<float>((static_cast<double>(i) / 255 - mean) / deviation);
  }
  return levels;
}

void LabelledImages::append(LabelledImages more) {
  if (labels.empty()) {
    *this = std::move(more);
    return;
  }
  pixels.insert(pixels.end(), more.pixels.begin(), more.pixels.end());
  labels.insert(labels.end(), more.labels.begin(), more.labels.end());
}

Data make_image_data(ImageFiles files, const DataOptions& options) {
  check_normalization(options, files.train.channels);
  auto train_images = std::make_shared<LabelledImages>(std::move(files.train));
  auto eval_images = train_images;
  SplitIndices split;
  const bool has_own = files.eval.count() > 0;
  if (has_own && (!options.eval_fraction || !options.eval_paths.empty())) {
    eval_images = std::make_shared<LabelledImages>(std::move(files.eval));
    split.train = all_of(train_images->count(), options.max_samples, options.seed);
    split.eval = all_of(eval_images->count(), options.max_samples, options.seed);
  } else {
    const double usual = options.eval_paths.empty() ? 0.1 : 0;
    split = split_indices(train_images->count(), options.eval_fraction.value_or(usual),
                          options.max_samples, options.seed);
  }
  Data data;
  DatasetInfo& info = data.info;
  info.mean = options.mean;
  info.std = options.std;
  std::vector<double> mean, deviation;
  if (info.mean.empty() || info.std.empty()) measure(*train_images, split.train, mean, deviation);
  if (info.mean.empty()) info.mean = mean;
  if (info.std.empty()) info.std = deviation;

  info.train_samples = static_cast<int64_t>(split.train.size());
  info.eval_samples = static_cast<int64_t>(split.eval.size());
  info.train_tokens = static_cast<double>(info.train_samples);
  info.eval_tokens = static_cast<double>(info.eval_samples);
  info.feature_shape = {train_images->channels, train_images->height, train_images->width};
  info.classes = std::move(files.classes);
  info.files = std::move(files.files);
  info.skipped = files.skipped;
  info.skipped_examples = std::move(files.skipped_examples);
  info.description = str(files.name, ", ", info.train_samples, " + ", info.eval_samples,
                         " images of ", train_images->channels, "×", train_images->height, "×",
                         train_images->width, ", ", info.classes.size(), " classes");
  Augmentation augmentation;
  if (options.augment) augmentation = {options.crop_padding, options.flip};
  std::vector<Levels> levels;
  for (size_t c = 0; c < info.mean.size(); ++c)
    levels.push_back(levels_of(info.mean[c], info.std[c]));
  const bool any_eval = !split.eval.empty();
  data.train =
      std::make_shared<ImageDataset>(train_images, std::move(split.train), levels, augmentation);
  if (any_eval) {
    data.eval =
        std::make_shared<ImageDataset>(eval_images, std::move(split.eval), levels, Augmentation{});
  }
  return data;
}

}  // namespace lumen::data
