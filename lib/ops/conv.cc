// Convolutions. conv2d is bilinear in its image and its weights; the three operations here are that
// form solved for each of its parts, so they are each other's gradients. Under bfloat16 autocast
// their kernels may round what they multiply (kernels/conv.h); meanings do not.
#include "lib/kernels/conv.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/graph/mixed_precision.h"
#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/ops.h"
#include "lib/ops/taps.h"

namespace lumen::ops {

extern const graph::OpDef kConv2d, kConvTranspose2d, kConv2dWeightGrad;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::pad;
using graph::record;
using graph::reshape;
using graph::slice;

// The extents of an image [batch, channels, height, width] and of the weights [out, in / groups,
// height, width] with the constants of the node, as kernels want them.
kernels::ConvShape conv_shape(const graph::Attrs& attrs, const Shape& x, const Shape& w,
                              const Shape& y) {
  const auto &stride = attrs.integers("stride"), &padding = attrs.integers("padding");
  const auto& dilation = attrs.integers("dilation");
  return {x[0],
          x[1],
          x[2],
          x[3],
          y[1],
          y[2],
          y[3],
          w[2],
          w[3],
          stride[0],
          stride[1],
          padding[0],
          padding[1],
          dilation[0],
          dilation[1],
          attrs.integer("groups"),
          attrs.has(graph::kBf16Attr)};
}

// Whether all of it fits together: every output element lies within the padded image.
bool is_convolution(const graph::Attrs& attrs, const Shape& x, const Shape& w, const Shape& y) {
  if (x.rank() != 4 || w.rank() != 4 || y.rank() != 4) return false;
  const kernels::ConvShape s = conv_shape(attrs, x, w, y);
  auto reaches = [](int64_t out, int64_t kernel, int64_t stride, int64_t dilation) {
    return (out - 1) * stride + (kernel - 1) * dilation + 1;
  };
  return x[0] == y[0] && x[1] == w[1] * s.groups && y[1] == w[0] && w[0] % s.groups == 0 &&
         y[2] >= 1 && y[3] >= 1 && w[2] >= 1 && w[3] >= 1 &&
         reaches(y[2], w[2], s.stride_y, s.dilation_y) <= x[2] + 2 * s.padding_y &&
         reaches(y[3], w[3], s.stride_x, s.dilation_x) <= x[3] + 2 * s.padding_x;
}

// That of all inputs: what else there is is brought to one of these two.
DType convolved_type(const Node& node) {
  const DType dtype = node.inputs[0]->dtype;
  bool fits = dtype == DType::kF32 || dtype == DType::kF64;
  for (const graph::NodePtr& input : node.inputs) fits &= input->dtype == dtype;
  if (!fits) shape_error(node, "all must be float32 or all float64");
  return dtype;
}

// Kernels of float64 need none.
bool needs_workspace(const Node& node) {
  return node.dtype == DType::kF32;
}

// The spatial extents of the result of every operation here.
Pair size_of(const Node& node) {
  const auto& size = node.attrs.integers("size");
  return {size[0], size[1]};
}

// Those of conv2d for an image and weights of rank 4; 0 where the kernel does not fit.
Pair out_size(const Conv2dOptions& options, const Shape& x, const Shape& w) {
  Pair size;
  for (int i : {0, 1}) {
    const int64_t room =
        x[2 + i] + 2 * options.padding[i] - options.dilation[i] * (w[2 + i] - 1) - 1;
    size[i] = room < 0 || options.stride[i] < 1 ? 0 : room / options.stride[i] + 1;
  }
  return size;
}

// --- Meanings, tap by tap ----------------------------------------------------------------------

// The image under tap (u, v) of the kernel: [batch, groups, in / groups, pixels].
Tensor tapped(const kernels::ConvShape& s, const Tensor& padded, int64_t u, int64_t v) {
  const Tensor rows = subsample(padded, 2, u * s.dilation_y, s.out_height, s.stride_y);
  const Tensor image = subsample(rows, 3, v * s.dilation_x, s.out_width, s.stride_x);
  return reshape(image, {s.batch, s.groups, s.in_channels / s.groups, s.out_height * s.out_width});
}

Tensor padded_image(const kernels::ConvShape& s, const Tensor& x) {
  return pad(pad(x, 2, s.padding_y, s.padding_y), 3, s.padding_x, s.padding_x);
}

// Tap (u, v) of the weights: [groups, out / groups, in / groups].
Tensor tap_weights(const kernels::ConvShape& s, const Tensor& w, int64_t u, int64_t v) {
  return reshape(slice(slice(w, 2, u, u + 1), 3, v, v + 1),
                 {s.groups, s.out_channels / s.groups, s.in_channels / s.groups});
}

// Σ over the taps of body(u, v).
template <class Body>
Tensor sum_over_taps(const kernels::ConvShape& s, const Body& body) {
  Tensor sum;
  for (int64_t u = 0; u < s.kernel_height; ++u) {
    for (int64_t v = 0; v < s.kernel_width; ++v) {
      const Tensor part = body(u, v);
      sum = sum.defined() ? add(sum, part) : part;
    }
  }
  return sum;
}

// --- conv2d: x, weight, bias or not ------------------------------------------------------------

graph::TypedShape infer_conv2d(const Node& node) {
  const DType dtype = convolved_type(node);
  const Shape &x = node.inputs[0]->shape, &w = node.inputs[1]->shape;
  if (x.rank() != 4 || w.rank() != 4) {
    shape_error(node, "needs [batch, in, height, width] and [out, in / groups, height, width]");
  }
  const Pair size = size_of(node);
  const Shape y = {x[0], w[0], size[0], size[1]};
  if (y[2] == 0 || y[3] == 0) shape_error(node, "the kernel is larger than the padded image");
  if (!is_convolution(node.attrs, x, w, y)) {
    shape_error(node, str("the channels do not fit ", node.attrs.integer("groups"), " groups"));
  }
  if (node.inputs.size() > 2 && !(node.inputs[2]->shape == Shape{w[0]})) {
    shape_error(node, "the bias must have one element per output channel");
  }
  return {dtype, y};
}

void run_conv2d(const KernelCall& call) {
  const auto &x = call.inputs[0], &w = call.inputs[1];
  const auto s = conv_shape(call.node->attrs, x.shape, w.shape, call.output.shape);
  const std::byte* bias = call.inputs.size() > 2 ? call.inputs[2].data : nullptr;
  if (x.dtype == DType::kF64) {
    return kernels::conv2d_f64(*call.pool, s, x.as<const double>(), w.as<const double>(),
                               reinterpret_cast<const double*>(bias), call.output.as<double>());
  }
  kernels::conv2d(*call.pool, s, x.as<const float>(), w.as<const float>(),
                  reinterpret_cast<const float*>(bias), call.output.as<float>(), call.workspace);
}

size_t conv2d_workspace(const Node& node, int threads) {
  if (!needs_workspace(node)) return 0;
  return kernels::conv2d_workspace_bytes(
      conv_shape(node.attrs, node.inputs[0]->shape, node.inputs[1]->shape, node.shape), threads);
}

Tensor conv2d_meaning(const Node& node, Inputs in) {
  const graph::AutocastScope exact(DType::kF32);
  const auto s = conv_shape(node.attrs, in[0].shape(), in[1].shape(), node.shape);
  const Tensor padded = padded_image(s, in[0]);
  const Tensor y =
      reshape(sum_over_taps(s,
                            [&](int64_t u, int64_t v) {
                              return matmul(tap_weights(s, in[1], u, v), tapped(s, padded, u, v));
                            }),
              node.shape);
  return in.size() > 2 ? add(y, reshape(in[2], {s.out_channels, 1, 1})) : y;
}

graph::Cost conv_cost(DType dtype, const Shape& x, const Shape& w, const Shape& y) {
  const auto products = static_cast<double>(y[0] * y[2] * y[3] * w.elements());
  const int64_t elements = x.elements() + w.elements() + y.elements();
  return {2 * products, static_cast<double>(row_bytes(dtype, elements))};
}

// --- conv_transpose2d: y, weight → x -----------------------------------------------------------

graph::TypedShape infer_conv_transpose2d(const Node& node) {
  const DType dtype = convolved_type(node);
  const Shape &y = node.inputs[0]->shape, &w = node.inputs[1]->shape;
  if (y.rank() != 4 || w.rank() != 4) {
    shape_error(node, "needs [batch, in, height, width] and [in, out / groups, height, width]");
  }
  const Pair size = size_of(node);
  const Shape x = {y[0], w[1] * node.attrs.integer("groups"), size[0], size[1]};
  if (!is_convolution(node.attrs, x, w, y)) {
    shape_error(
        node, str("cannot give ", to_string(x), " with ", node.attrs.integer("groups"), " groups"));
  }
  return {dtype, x};
}

void run_conv_transpose2d(const KernelCall& call) {
  const auto &y = call.inputs[0], &w = call.inputs[1];
  const auto s = conv_shape(call.node->attrs, call.output.shape, w.shape, y.shape);
  if (y.dtype == DType::kF64) {
    return kernels::conv2d_input_grad_f64(*call.pool, s, y.as<const double>(), w.as<const double>(),
                                          call.output.as<double>());
  }
  kernels::conv2d_input_grad(*call.pool, s, y.as<const float>(), w.as<const float>(),
                             call.output.as<float>(), call.workspace);
}

size_t conv_transpose2d_workspace(const Node& node, int threads) {
  if (!needs_workspace(node)) return 0;
  return kernels::conv2d_input_grad_workspace_bytes(
      conv_shape(node.attrs, node.shape, node.inputs[1]->shape, node.inputs[0]->shape), threads);
}

Tensor conv_transpose2d_meaning(const Node& node, Inputs in) {
  const graph::AutocastScope exact(DType::kF32);
  const auto s = conv_shape(node.attrs, node.shape, in[1].shape(), in[0].shape());
  const int64_t height = s.in_height + 2 * s.padding_y, width = s.in_width + 2 * s.padding_x;
  const Tensor y =
      reshape(in[0], {s.batch, s.groups, s.out_channels / s.groups, s.out_height * s.out_width});
  const Tensor padded = sum_over_taps(s, [&](int64_t u, int64_t v) {
    const Tensor product = matmul(graph::transpose(tap_weights(s, in[1], u, v), 1, 2), y);
    const Tensor image = reshape(product, {s.batch, s.in_channels, s.out_height, s.out_width});
    const Tensor rows = spread(image, 2, u * s.dilation_y, height, s.stride_y);
    return spread(rows, 3, v * s.dilation_x, width, s.stride_x);
  });
  return slice(slice(padded, 2, s.padding_y, s.padding_y + s.in_height), 3, s.padding_x,
               s.padding_x + s.in_width);
}

// --- conv2d_weight_grad: x, dy → dw ------------------------------------------------------------

graph::TypedShape infer_weight_grad(const Node& node) {
  const DType dtype = convolved_type(node);
  const Shape &x = node.inputs[0]->shape, &y = node.inputs[1]->shape;
  if (x.rank() != 4 || y.rank() != 4) shape_error(node, "needs two images");
  const Pair size = size_of(node);
  const Shape w = {y[1], x[1] / node.attrs.integer("groups"), size[0], size[1]};
  if (!is_convolution(node.attrs, x, w, y)) {
    shape_error(node, "the images are not input and output of such a convolution");
  }
  return {dtype, w};
}

void run_weight_grad(const KernelCall& call) {
  const auto &x = call.inputs[0], &dy = call.inputs[1];
  const auto s = conv_shape(call.node->attrs, x.shape, call.output.shape, dy.shape);
  if (x.dtype == DType::kF64) {
    return kernels::conv2d_weight_grad_f64(*call.pool, s, x.as<const double>(),
                                           dy.as<const double>(), call.output.as<double>());
  }
  kernels::conv2d_weight_grad(*call.pool, s, x.as<const float>(), dy.as<const float>(),
                              call.output.as<float>(), call.workspace);
}

size_t weight_grad_workspace(const Node& node, int threads) {
  if (!needs_workspace(node)) return 0;
  return kernels::conv2d_weight_grad_workspace_bytes(
      conv_shape(node.attrs, node.inputs[0]->shape, node.shape, node.inputs[1]->shape), threads);
}

Tensor weight_grad_meaning(const Node& node, Inputs in) {
  const graph::AutocastScope exact(DType::kF32);
  const auto s = conv_shape(node.attrs, in[0].shape(), node.shape, in[1].shape());
  const Tensor padded = padded_image(s, in[0]);
  const Tensor dy =
      reshape(in[1], {s.batch, s.groups, s.out_channels / s.groups, s.out_height * s.out_width});
  return sum_over_taps(s, [&](int64_t u, int64_t v) {
    const Tensor product = matmul(dy, graph::transpose(tapped(s, padded, u, v), 2, 3));
    const Tensor tap = reshape(sum(product, 0), {s.out_channels, s.in_channels / s.groups, 1, 1});
    return pad(pad(tap, 2, u, s.kernel_height - 1 - u), 3, v, s.kernel_width - 1 - v);
  });
}

// --- Cases -------------------------------------------------------------------------------------

struct ConvCase {
  const char* label;
  Shape x, w;
  Conv2dOptions options;
};

const std::vector<ConvCase>& conv_cases() {
  static const std::vector<ConvCase> cases = {
      {"3x3 same", {2, 3, 5, 7}, {4, 3, 3, 3}, {.padding = {1, 1}}},
      {"1x1", {2, 5, 4, 3}, {7, 5, 1, 1}, {}},
      {"5x5 one channel", {3, 1, 12, 12}, {6, 1, 5, 5}, {}},
      {"strides", {2, 3, 9, 10}, {4, 3, 3, 2}, {.stride = {2, 3}, .padding = {1, 0}}},
      {"a stride that leaves a rest", {1, 2, 8, 8}, {3, 2, 3, 3}, {.stride = {2, 2}}},
      {"dilation",
       {1, 2, 11, 12},
       {3, 2, 3, 3},
       {.stride = {1, 2}, .padding = {2, 1}, .dilation = {3, 2}}},
      {"groups", {2, 6, 5, 5}, {9, 2, 3, 3}, {.padding = {1, 1}, .groups = 3}},
      {"depthwise", {2, 5, 6, 6}, {5, 1, 3, 3}, {.padding = {1, 1}, .groups = 5}},
      {"padding beyond the kernel",
       {1, 2, 3, 3},
       {2, 2, 1, 1},
       {.stride = {2, 2}, .padding = {2, 2}}},
  };
  return cases;
}

Shape out_shape(const ConvCase& test) {
  const Pair size = out_size(test.options, test.x, test.w);
  return {test.x[0], test.w[0], size[0], size[1]};
}

std::vector<OpCase> conv2d_cases() {
  std::vector<OpCase> cases;
  for (const ConvCase& test : conv_cases()) {
    for (DType dtype : {DType::kF32, DType::kF64}) {
      cases.push_back({str(test.label, " ", name(dtype)),
                       {{dtype, test.x}, {dtype, test.w}, {dtype, {test.w[0]}}},
                       [&](Inputs in) { return conv2d(in[0], in[1], in[2], test.options); },
                       -1,
                       1,
                       5e-6});
    }
  }
  cases.push_back({"no bias",
                   {f32({1, 2, 4, 4}), f32({3, 2, 3, 3})},
                   [](Inputs in) { return conv2d(in[0], in[1]); },
                   -1,
                   1,
                   5e-6});
  cases.push_back({"no input channels",
                   {f32({2, 0, 4, 4}), f32({3, 0, 3, 3}), f32({3})},
                   [](Inputs in) { return conv2d(in[0], in[1], in[2]); }});
  cases.push_back({"conv1d",
                   {f32({2, 3, 11}), f32({4, 3, 3}), f32({4})},
                   [](Inputs in) {
                     return conv1d(in[0], in[1], in[2], {.stride = 2, .padding = 2, .dilation = 2});
                   },
                   -1,
                   1,
                   5e-6});
  return cases;
}

std::vector<OpCase> conv_transpose2d_cases() {
  std::vector<OpCase> cases;
  for (const ConvCase& test : conv_cases()) {
    for (DType dtype : {DType::kF32, DType::kF64}) {
      cases.push_back(
          {str(test.label, " ", name(dtype)),
           {{dtype, out_shape(test)}, {dtype, test.w}},
           [&](Inputs in) {
             return conv2d_input_grad(in[0], in[1], {test.x[2], test.x[3]}, test.options);
           },
           -1,
           1,
           5e-6});
    }
  }
  cases.push_back({"output padding",
                   {f32({2, 4, 3, 5}), f32({4, 3, 3, 3}), f32({6})},
                   [](Inputs in) {
                     return conv_transpose2d(in[0], in[1], in[2],
                                             {.stride = {2, 2}, .padding = {1, 0}, .groups = 2},
                                             {1, 0});
                   },
                   -1,
                   1,
                   5e-6});
  return cases;
}

std::vector<OpCase> weight_grad_cases() {
  std::vector<OpCase> cases;
  for (const ConvCase& test : conv_cases()) {
    for (DType dtype : {DType::kF32, DType::kF64}) {
      cases.push_back(
          {str(test.label, " ", name(dtype)),
           {{dtype, test.x}, {dtype, out_shape(test)}},
           [&](Inputs in) {
             return conv2d_weight_grad(in[0], in[1], {test.w[2], test.w[3]}, test.options);
           },
           -1,
           1,
           1e-5});
    }
  }
  return cases;
}

// --- Gradients ---------------------------------------------------------------------------------

Conv2dOptions options_of(const graph::Attrs& attrs) {
  auto pair = [&](const char* name) {
    const auto& list = attrs.integers(name);
    return Pair{list[0], list[1]};
  };
  return {pair("stride"), pair("padding"), pair("dilation"), attrs.integer("groups")};
}

void require_options(const OpDef& op, const Conv2dOptions& options) {
  constexpr int64_t kMost = INT32_MAX;  // so that extents do not overflow
  bool fits = options.groups >= 1;
  for (int i : {0, 1}) {
    fits &= options.stride[i] >= 1 && options.padding[i] >= 0 && options.dilation[i] >= 1;
    fits &= std::max({options.stride[i], options.padding[i], options.dilation[i]}) <= kMost;
  }
  if (!fits) {
    fail(ErrorKind::kMalformed, op.name,
         ": stride, dilation and groups must be at least 1, padding at least 0, and none above ",
         kMost);
  }
}

Tensor record_conv(const OpDef& op, std::span<const Tensor> inputs, Pair size,
                   const Conv2dOptions& options) {
  require_options(op, options);
  auto list = [](const Pair& pair) { return std::vector<int64_t>(pair.begin(), pair.end()); };
  return record(op, inputs,
                {{"size", list(size)},
                 {"stride", list(options.stride)},
                 {"padding", list(options.padding)},
                 {"dilation", list(options.dilation)},
                 {"groups", options.groups}});
}

std::vector<Tensor> grad_conv2d(const graph::GradCall& call) {
  const graph::AutocastScope precision = graph::gradient_precision(call.node);
  const Tensor &x = call.inputs[0], &w = call.inputs[1];
  const Conv2dOptions options = options_of(call.node.attrs);
  std::vector<Tensor> gradients(call.inputs.size());
  if (x.requires_grad()) {
    gradients[0] = conv2d_input_grad(call.dy, w, {x.dim(2), x.dim(3)}, options);
  }
  if (w.requires_grad()) {
    gradients[1] = conv2d_weight_grad(x, call.dy, {w.dim(2), w.dim(3)}, options);
  }
  if (call.inputs.size() > 2) {
    const Tensor rows = reshape(call.dy, {call.dy.dim(0), call.dy.dim(1), -1});
    gradients[2] = reshape(sum(sum(rows, 2), 0), {w.dim(0)});
  }
  return gradients;
}

std::vector<Tensor> grad_conv_transpose2d(const graph::GradCall& call) {
  const graph::AutocastScope precision = graph::gradient_precision(call.node);
  const Tensor &y = call.inputs[0], &w = call.inputs[1];
  const Conv2dOptions options = options_of(call.node.attrs);
  const Tensor inputs[] = {call.dy, w};
  return {record_conv(kConv2d, inputs, {y.dim(2), y.dim(3)}, options),
          conv2d_weight_grad(call.dy, y, {w.dim(2), w.dim(3)}, options)};
}

std::vector<Tensor> grad_weight_grad(const graph::GradCall& call) {
  const graph::AutocastScope precision = graph::gradient_precision(call.node);
  const Tensor &x = call.inputs[0], &dy = call.inputs[1];
  const Conv2dOptions options = options_of(call.node.attrs);
  const Tensor inputs[] = {x, call.dy};
  return {conv2d_input_grad(dy, call.dy, {x.dim(2), x.dim(3)}, options),
          record_conv(kConv2d, inputs, {dy.dim(2), dy.dim(3)}, options)};
}

void require_images(const OpDef& op, const Tensor& x, const Tensor& w) {
  graph::check_defined(x, op.name, "x");
  graph::check_defined(w, op.name, "weight");
  if (x.rank() == 4 && w.rank() == 4) return;
  fail(ErrorKind::kMalformed, op.name, "(", to_string(x.shape()), ", ", to_string(w.shape()),
       "): needs [batch, channels, height, width], or no batch, and weights of rank 4");
}

Conv2dOptions as_options(const Conv1dOptions& options) {
  return {{1, options.stride}, {0, options.padding}, {1, options.dilation}, options.groups};
}

}  // namespace

const OpDef kConv2d = {.name = "conv2d",
                       .kind = graph::OpKind::kContraction,
                       .infer = infer_conv2d,
                       .kernel = run_conv2d,
                       .workspace = conv2d_workspace,
                       .meaning = conv2d_meaning,
                       .grad = grad_conv2d,
                       .autocast = graph::Autocast::kInside,
                       .cost =
                           [](const Node& node) {
                             return conv_cost(node.dtype, node.inputs[0]->shape,
                                              node.inputs[1]->shape, node.shape);
                           },
                       .cases = conv2d_cases};
const OpDef kConvTranspose2d = {
    .name = "conv_transpose2d",
    .kind = graph::OpKind::kContraction,
    .infer = infer_conv_transpose2d,
    .kernel = run_conv_transpose2d,
    .workspace = conv_transpose2d_workspace,
    .meaning = conv_transpose2d_meaning,
    .grad = grad_conv_transpose2d,
    .autocast = graph::Autocast::kInside,
    .cost =
        [](const Node& node) {
          return conv_cost(node.dtype, node.shape, node.inputs[1]->shape, node.inputs[0]->shape);
        },
    .cases = conv_transpose2d_cases};
const OpDef kConv2dWeightGrad = {.name = "conv2d_weight_grad",
                                 .kind = graph::OpKind::kContraction,
                                 .infer = infer_weight_grad,
                                 .kernel = run_weight_grad,
                                 .workspace = weight_grad_workspace,
                                 .meaning = weight_grad_meaning,
                                 .grad = grad_weight_grad,
                                 .autocast = graph::Autocast::kInside,
                                 .cost =
                                     [](const Node& node) {
                                       return conv_cost(node.dtype, node.inputs[0]->shape,
                                                        node.shape, node.inputs[1]->shape);
                                     },
                                 .cases = weight_grad_cases};

namespace {

// Of images and weights of one type that has kernels.
Tensor convolve(const Tensor& x, const Tensor& weight, const Tensor& bias,
                const Conv2dOptions& options) {
  require_images(kConv2d, x, weight);
  require_options(kConv2d, options);
  std::vector<Tensor> inputs = {x, weight};
  if (bias.defined()) inputs.push_back(bias);
  return record_conv(kConv2d, inputs, out_size(options, x.shape(), weight.shape()), options);
}

Tensor transposed_convolve(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const Conv2dOptions& options, Pair output_padding) {
  require_images(kConvTranspose2d, x, weight);
  require_options(kConvTranspose2d, options);
  Pair size;
  for (int i : {0, 1}) {
    if (output_padding[i] < 0 ||
        output_padding[i] >= std::max(options.stride[i], options.dilation[i])) {
      fail(ErrorKind::kMalformed, kConvTranspose2d.name, ": output padding ", output_padding[i],
           " must be smaller than the stride or the dilation");
    }
    size[i] = (x.dim(2 + i) - 1) * options.stride[i] - 2 * options.padding[i] +
              options.dilation[i] * (weight.dim(2 + i) - 1) + output_padding[i] + 1;
    if (size[i] < 1) fail(ErrorKind::kMalformed, kConvTranspose2d.name, ": the result is empty");
  }
  const Tensor y = conv2d_input_grad(x, weight, size, options);
  return bias.defined() ? add(y, reshape(bias, {y.dim(1), 1, 1})) : y;
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  return with_batch(x, 4, [&](const Tensor& images) {
    return in_common_float(
        kConv2d.name,
        [&](const Tensor& i, const Tensor& w, const Tensor& b) {
          return convolve(i, w, b, options);
        },
        images, weight, bias);
  });
}

Tensor conv2d_input_grad(const Tensor& dy, const Tensor& weight, Pair size,
                         const Conv2dOptions& options) {
  return in_common_float(
      kConvTranspose2d.name,
      [&](const Tensor& d, const Tensor& w) {
        const Tensor inputs[] = {d, w};
        return record_conv(kConvTranspose2d, inputs, size, options);
      },
      dy, weight);
}

Tensor conv2d_weight_grad(const Tensor& x, const Tensor& dy, Pair size,
                          const Conv2dOptions& options) {
  return in_common_float(
      kConv2dWeightGrad.name,
      [&](const Tensor& i, const Tensor& d) {
        const Tensor inputs[] = {i, d};
        return record_conv(kConv2dWeightGrad, inputs, size, options);
      },
      x, dy);
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const Conv2dOptions& options, Pair output_padding) {
  return with_batch(x, 4, [&](const Tensor& images) {
    return in_common_float(
        kConvTranspose2d.name,
        [&](const Tensor& i, const Tensor& w, const Tensor& b) {
          return transposed_convolve(i, w, b, options, output_padding);
        },
        images, weight, bias);
  });
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options) {
  return with_batch(x, 3, [&](const Tensor& signals) {
    return as_signal(
        conv2d(as_image("conv1d", signals), as_image("conv1d", weight), bias, as_options(options)));
  });
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const Conv1dOptions& options, int64_t output_padding) {
  return with_batch(x, 3, [&](const Tensor& signals) {
    return as_signal(conv_transpose2d(as_image("conv_transpose1d", signals),
                                      as_image("conv_transpose1d", weight), bias,
                                      as_options(options), {0, output_padding}));
  });
}

}  // namespace lumen::ops
