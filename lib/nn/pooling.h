// Pooling of images [batch, channels, height, width] and signals [batch, channels, length], also
// without the batch axis, and flattening. Each pooling has the options, result and errors of the
// function of its name in ops.h, when it is applied; floats of any type.
#pragma once

#include <array>

#include "lib/ops/ops.h"

namespace lumen::nn {

using graph::Tensor;

struct MaxPool2d {
  explicit MaxPool2d(const ops::PoolOptions& options) : options(options) {}
  explicit MaxPool2d(int64_t kernel) : options{.kernel = {kernel, kernel}} {}
  Tensor operator()(const Tensor& x) const { return ops::max_pool2d(x, options); }
  ops::PoolOptions options;
};

struct AvgPool2d {
  explicit AvgPool2d(const ops::PoolOptions& options) : options(options) {}
  explicit AvgPool2d(int64_t kernel) : options{.kernel = {kernel, kernel}} {}
  Tensor operator()(const Tensor& x) const { return ops::avg_pool2d(x, options); }
  ops::PoolOptions options;
};

struct AdaptiveAvgPool2d {
  explicit AdaptiveAvgPool2d(std::array<int64_t, 2> size) : size(size) {}
  Tensor operator()(const Tensor& x) const { return ops::adaptive_avg_pool2d(x, size); }
  std::array<int64_t, 2> size;
};

struct MaxPool1d {
  explicit MaxPool1d(const ops::Pool1dOptions& options) : options(options) {}
  Tensor operator()(const Tensor& x) const { return ops::max_pool1d(x, options); }
  ops::Pool1dOptions options;
};

struct AvgPool1d {
  explicit AvgPool1d(const ops::Pool1dOptions& options) : options(options) {}
  Tensor operator()(const Tensor& x) const { return ops::avg_pool1d(x, options); }
  ops::Pool1dOptions options;
};

struct AdaptiveAvgPool1d {
  explicit AdaptiveAvgPool1d(int64_t size) : size(size) {}
  Tensor operator()(const Tensor& x) const { return ops::adaptive_avg_pool1d(x, size); }
  int64_t size;
};

// Axes first … last become one.
struct Flatten {
  explicit Flatten(int first = 1, int last = -1) : first(first), last(last) {}
  Tensor operator()(const Tensor& x) const;
  int first, last;
};

}  // namespace lumen::nn
