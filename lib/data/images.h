// Labelled images: where they come from, and batches of them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/data/data.h"

namespace lumen::data {

// Images of one size with a class each, as bytes [count, channels, height, width].
struct LabelledImages {
  int64_t channels = 0, height = 0, width = 0;
  std::vector<uint8_t> pixels;
  std::vector<int32_t> labels;

  int64_t count() const { return static_cast<int64_t>(labels.size()); }
  int64_t pixels_per_image() const { return channels * height * width; }
  // Appends `more`, which has the same size of image unless this is empty.
  void append(LabelledImages more);
};

// What a reader of images found. `eval` is empty unless the format has a part for it.
struct ImageFiles {
  LabelledImages train, eval;
  std::vector<std::string> classes;
  std::string name;  // "MNIST"
  std::vector<SourceFile> files;
  int64_t skipped = 0;
  std::vector<std::string> skipped_examples;
};

// The readers. They use of `options` only paths, eval_paths and what is about images. Throw Error:
// kMissing, kMalformed "FILE: …".
ImageFiles read_mnist(const DataOptions& options);    // https://yann.lecun.com/exdb/mnist
ImageFiles read_cifar10(const DataOptions& options);  // https://www.cs.toronto.edu/~kriz/cifar.html
ImageFiles read_image_folders(const DataOptions& options);
ImageFiles draw_digit_sets(const DataOptions& options);

// Digits drawn with strokes of random shape, thickness, slant, place and noise: `count` images of
// `size` × `size` from number `first` on, class number mod 10. With 3 channels on coloured ground.
// Image n is a function of (seed, n, size, channels).
LabelledImages draw_digits(int64_t first, int64_t count, int64_t size, int64_t channels,
                           uint64_t seed);

// The value of every pixel of a channel after normalisation: (pixel / 255 − mean) / deviation.
using Levels = std::array<float, 256>;
Levels levels_of(double mean, double deviation);

// Splits what was read and makes the data sets.
Data make_image_data(ImageFiles files, const DataOptions& options);

}  // namespace lumen::data
