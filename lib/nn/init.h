// How parameters start.
#pragma once

#include <optional>

#include "lib/base/random.h"
#include "lib/tensor/array.h"

namespace lumen::nn {

// A distribution of start values. Fans are PyTorch's: of a weight [out, in, kernel…], fan_in is
// in · kernel, fan_out is out · kernel.
struct Init {
  enum class Kind {
    kConstant,        // a
    kNormal,          // mean 0, deviation a
    kUniform,         // in [−a, a]
    kKaimingUniform,  // bound √(6 / ((1 + a²) · fan_in)); He et al. 2015, leaky-ReLU slope a
    kKaimingNormal,   // deviation √(2 / ((1 + a²) · fan_in))
    kXavierUniform,   // bound a · √(6 / (fan_in + fan_out)); Glorot & Bengio 2010, gain a
    kXavierNormal,    // deviation a · √(2 / (fan_in + fan_out))
    kLogUniform,      // ln u, u uniform in [0.01, a]
  };
  Kind kind = Kind::kConstant;
  double a = 0;
  std::optional<int64_t> zero_row{};  // of a matrix, starts as zeros all the same

  static Init constant(double value) { return {Kind::kConstant, value}; }
  static Init zeros() { return constant(0); }
  static Init ones() { return constant(1); }
  static Init normal(double deviation) { return {Kind::kNormal, deviation}; }
  static Init uniform(double bound) { return {Kind::kUniform, bound}; }
  static Init kaiming_uniform(double slope = 0) { return {Kind::kKaimingUniform, slope}; }
  static Init kaiming_normal(double slope = 0) { return {Kind::kKaimingNormal, slope}; }
  static Init xavier_uniform(double gain = 1) { return {Kind::kXavierUniform, gain}; }
  static Init xavier_normal(double gain = 1) { return {Kind::kXavierNormal, gain}; }
  static Init log_uniform(double most) { return {Kind::kLogUniform, most}; }
  // In [−1/√fan_in, 1/√fan_in]: PyTorch's default for weights of Linear and Conv layers, where it
  // is written as kaiming_uniform(√5).
  static Init fan_in_uniform();

  // In ±1/√n, zeros for n = 0: PyTorch's default for biases, of fan_in n, and recurrent layers.
  static Init within_root(double n);

  // Whether it is drawn around 0, as weights are.
  bool is_around_zero() const { return kind != Kind::kConstant && kind != Kind::kLogUniform; }
};

// fan_in and fan_out of a weight of this shape, which has at least two axes.
struct Fans {
  double in, out;
};
Fans fans(const Shape& shape);

// New memory with values drawn from `random`. Kaiming and Xavier need a shape of at least two axes
// (checked). `dtype` is a plain float type, or an integer type for constants.
Array initialized(const Init& init, DType dtype, const Shape& shape, Philox& random);

}  // namespace lumen::nn
