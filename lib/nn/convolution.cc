#include "lib/nn/convolution.h"

#include "lib/base/error.h"

namespace lumen::nn {
namespace {

void check_groups(int64_t in, int64_t out, int64_t groups) {
  if (groups >= 1 && in % groups == 0 && out % groups == 0) return;
  fail(ErrorKind::kMalformed, "a convolution from ", in, " to ", out,
       " channels cannot have groups = ", groups, ": it must divide both");
}

Tensor weight_of(const Parameters& parameters, const Shape& shape) {
  return parameters.get_f32("weight", shape, Init::fan_in_uniform());
}

// Of a layer whose weight has this shape.
Tensor bias_of(const Parameters& parameters, int64_t out, const Shape& weight) {
  return parameters.get_f32("bias", {out}, Init::within_root(fans(weight).in));
}

}  // namespace

Conv2d::Conv2d(const Parameters& parameters, int64_t in, int64_t out, std::array<int64_t, 2> kernel,
               const ops::Conv2dOptions& given, bool with_bias)
    : options(given) {
  check_groups(in, out, options.groups);
  const Shape shape = {out, in / options.groups, kernel[0], kernel[1]};
  weight = weight_of(parameters, shape);
  if (with_bias) bias = bias_of(parameters, out, shape);
}

Conv1d::Conv1d(const Parameters& parameters, int64_t in, int64_t out, int64_t kernel,
               const ops::Conv1dOptions& given, bool with_bias)
    : options(given) {
  check_groups(in, out, options.groups);
  const Shape shape = {out, in / options.groups, kernel};
  weight = weight_of(parameters, shape);
  if (with_bias) bias = bias_of(parameters, out, shape);
}

ConvTranspose2d::ConvTranspose2d(const Parameters& parameters, int64_t in, int64_t out,
                                 std::array<int64_t, 2> kernel, const ops::Conv2dOptions& given,
                                 std::array<int64_t, 2> more_padding, bool with_bias)
    : options(given), output_padding(more_padding) {
  check_groups(in, out, options.groups);
  const Shape shape = {in, out / options.groups, kernel[0], kernel[1]};
  weight = weight_of(parameters, shape);
  if (with_bias) bias = bias_of(parameters, out, shape);
}

}  // namespace lumen::nn
