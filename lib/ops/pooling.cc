// Pooling. Taking the values at the maxima of an image, and putting values there, are each other's
// gradients; so are averaging and spreading evenly.
#include "lib/kernels/pooling.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/ops.h"
#include "lib/ops/taps.h"

namespace lumen::ops {

extern const graph::OpDef kMaxPool2d, kMaxPool2dGrad, kAvgPool2d, kAvgPool2dGrad;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::pad;
using graph::record;
using graph::reshape;
using graph::slice;

// Attribute "size" is the spatial extent of the result, "kernel" {0, 0} says adaptive.
kernels::PoolShape pool_shape(const graph::Attrs& attrs, const Shape& in, const Shape& out) {
  const auto &kernel = attrs.integers("kernel"), &stride = attrs.integers("stride");
  const auto &padding = attrs.integers("padding"), &dilation = attrs.integers("dilation");
  return {.planes = in[0] * in[1],
          .in_height = in[2],
          .in_width = in[3],
          .out_height = out[2],
          .out_width = out[3],
          .kernel_height = kernel[0],
          .kernel_width = kernel[1],
          .stride_y = stride[0],
          .stride_x = stride[1],
          .padding_y = padding[0],
          .padding_x = padding[1],
          .dilation_y = dilation[0],
          .dilation_x = dilation[1],
          .adaptive = kernel[0] == 0,
          .include_padding = attrs.integer("include_padding") != 0,
          .divisor = attrs.integer("divisor")};
}

Shape resized(const Shape& shape, const graph::Attrs& attrs) {
  const auto& size = attrs.integers("size");
  return {shape[0], shape[1], size[0], size[1]};
}

// --- Maximum: x and values → values at the maxima; x and dy → dy at the maxima -------------------

// The type of all inputs.
DType type_of_images(const Node& node) {
  const DType dtype = node.inputs[0]->dtype;
  for (const graph::NodePtr& input : node.inputs) {
    if (input->dtype != dtype || (dtype != DType::kF32 && dtype != DType::kF64)) {
      shape_error(node, "all must be float32 or all float64");
    }
    if (input->shape.rank() != 4) shape_error(node, "needs [batch, channels, height, width]");
  }
  return dtype;
}

graph::TypedShape infer_max_pool(const Node& node) {
  const DType dtype = type_of_images(node);
  if (!(node.inputs[0]->shape == node.inputs[1]->shape)) shape_error(node, "the images differ");
  return {dtype, resized(node.inputs[0]->shape, node.attrs)};
}

graph::TypedShape infer_max_pool_grad(const Node& node) {
  const DType dtype = type_of_images(node);
  if (!(resized(node.inputs[0]->shape, node.attrs) == node.inputs[1]->shape)) {
    shape_error(node, "the gradient has another shape than the result");
  }
  return {dtype, node.inputs[0]->shape};
}

void run_max_pool(const KernelCall& call) {
  const auto &x = call.inputs[0], &values = call.inputs[1];
  const auto s = pool_shape(call.node->attrs, x.shape, call.output.shape);
  if (x.dtype == DType::kF64) {
    return kernels::max_pool2d_f64(*call.pool, s, x.as<const double>(), values.as<const double>(),
                                   call.output.as<double>());
  }
  kernels::max_pool2d(*call.pool, s, x.as<const float>(), values.as<const float>(),
                      call.output.as<float>());
}

void run_max_pool_grad(const KernelCall& call) {
  const auto &x = call.inputs[0], &dy = call.inputs[1];
  const auto s = pool_shape(call.node->attrs, x.shape, dy.shape);
  if (x.dtype == DType::kF64) {
    return kernels::max_pool2d_grad_f64(*call.pool, s, x.as<const double>(), dy.as<const double>(),
                                        call.output.as<double>());
  }
  kernels::max_pool2d_grad(*call.pool, s, x.as<const float>(), dy.as<const float>(),
                           call.output.as<float>());
}

// What tap (u, v) of every window sees in a padded image.
Tensor tapped(const kernels::PoolShape& s, const Tensor& padded, int64_t u, int64_t v) {
  const Tensor rows = subsample(padded, 2, u * s.dilation_y, s.out_height, s.stride_y);
  return subsample(rows, 3, v * s.dilation_x, s.out_width, s.stride_x);
}

// What an axis is padded to: windows may reach beyond the padding (ceil_mode).
struct Padded {
  int64_t before, after, extent;

  Padded(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation)
      : before(padding),
        after(std::max(padding, (out - 1) * stride + (kernel - 1) * dilation + 1 - padding - in)),
        extent(before + in + after) {}
};
Padded padded_rows(const kernels::PoolShape& s) {
  return {s.in_height, s.out_height, s.kernel_height, s.stride_y, s.padding_y, s.dilation_y};
}
Padded padded_columns(const kernels::PoolShape& s) {
  return {s.in_width, s.out_width, s.kernel_width, s.stride_x, s.padding_x, s.dilation_x};
}

Tensor padded_image(const kernels::PoolShape& s, const Tensor& x) {
  const Padded rows = padded_rows(s), columns = padded_columns(s);
  return pad(pad(x, 2, rows.before, rows.after), 3, columns.before, columns.after);
}

// The first largest tap of every window, counted from 0.
Tensor largest_tap(const kernels::PoolShape& s, const Tensor& x) {
  const Tensor one = graph::scalar(1);
  const Tensor inside = padded_image(s, graph::contiguous(graph::expand(one, x.shape())));
  const Tensor padded = add(padded_image(s, x), mul(sub(inside, one), graph::scalar(1e30f)));
  Tensor best = tapped(s, padded, 0, 0), index = mul(best, graph::scalar(0));
  for (int64_t tap = 1; tap < s.kernel_height * s.kernel_width; ++tap) {
    const Tensor seen = tapped(s, padded, tap / s.kernel_width, tap % s.kernel_width);
    const Tensor larger = less_than(best, seen);
    best = where(larger, seen, best);
    index = where(larger, graph::scalar(static_cast<float>(tap)), index);
  }
  return index;
}

// Σ over the taps of body(1 where this tap is the largest, u, v).
template <class Body>
Tensor sum_over_taps(const kernels::PoolShape& s, const Tensor& x, const Body& body) {
  const Tensor index = largest_tap(s, x);
  Tensor total;
  for (int64_t tap = 0; tap < s.kernel_height * s.kernel_width; ++tap) {
    const Tensor part = body(equal(index, graph::scalar(static_cast<float>(tap))),
                             tap / s.kernel_width, tap % s.kernel_width);
    total = total.defined() ? add(total, part) : part;
  }
  return total;
}

Tensor max_pool_meaning(const Node& node, Inputs in) {
  const auto s = pool_shape(node.attrs, in[0].shape(), node.shape);
  const Tensor values = padded_image(s, in[1]);
  return sum_over_taps(s, in[0], [&](const Tensor& chosen, int64_t u, int64_t v) {
    return mul(chosen, tapped(s, values, u, v));
  });
}

// Adds what the windows give to their tap (u, v), in a padded image that is cut at the end.
Tensor max_pool_grad_meaning(const Node& node, Inputs in) {
  const auto s = pool_shape(node.attrs, in[0].shape(), in[1].shape());
  const Tensor padded = sum_over_taps(s, in[0], [&](const Tensor& chosen, int64_t u, int64_t v) {
    const Tensor rows =
        spread(mul(chosen, in[1]), 2, u * s.dilation_y, padded_rows(s).extent, s.stride_y);
    return spread(rows, 3, v * s.dilation_x, padded_columns(s).extent, s.stride_x);
  });
  return slice(slice(padded, 2, s.padding_y, s.padding_y + s.in_height), 3, s.padding_x,
               s.padding_x + s.in_width);
}

std::vector<Tensor> grad_max_pool(const graph::GradCall& call) {
  return {Tensor(), record(kMaxPool2dGrad, {call.inputs[0], call.dy}, call.node.attrs)};
}
std::vector<Tensor> grad_max_pool_grad(const graph::GradCall& call) {
  return {Tensor(), record(kMaxPool2d, {call.inputs[0], call.dy}, call.node.attrs)};
}

// --- Average: x → y; dy → dx -------------------------------------------------------------------

graph::TypedShape infer_avg_pool(const Node& node) {
  const DType dtype = type_of_images(node);
  return {dtype, resized(node.inputs[0]->shape, node.attrs)};
}

void run_avg_pool(const KernelCall& call) {
  const auto& x = call.inputs[0];
  const auto s = pool_shape(call.node->attrs, x.shape, call.output.shape);
  if (x.dtype == DType::kF64) {
    return kernels::avg_pool2d_f64(*call.pool, s, x.as<const double>(), call.output.as<double>());
  }
  kernels::avg_pool2d(*call.pool, s, x.as<const float>(), call.output.as<float>());
}
void run_avg_pool_grad(const KernelCall& call) {
  const auto& dy = call.inputs[0];
  const auto s = pool_shape(call.node->attrs, call.output.shape, dy.shape);
  if (dy.dtype == DType::kF64) {
    return kernels::avg_pool2d_grad_f64(*call.pool, s, dy.as<const double>(),
                                        call.output.as<double>());
  }
  kernels::avg_pool2d_grad(*call.pool, s, dy.as<const float>(), call.output.as<float>());
}

// [out, in] along one axis: the weight of every pixel in every average. The two axes' weights
// multiply; a divisor is that of the first.
Tensor averages(const Node& node, int axis, int64_t in, int64_t out) {
  const graph::Attrs& attrs = node.attrs;
  const int64_t kernel = attrs.integers("kernel")[axis], stride = attrs.integers("stride")[axis];
  const int64_t padding = attrs.integers("padding")[axis];
  const int64_t divisor = attrs.integer("divisor");
  Array weights = Array::zeros(node.dtype, {out, in});
  for (int64_t i = 0; i < out; ++i) {
    const bool adaptive = kernel == 0;
    const int64_t begin = adaptive ? i * in / out : std::max<int64_t>(0, i * stride - padding);
    const int64_t end =
        adaptive ? ((i + 1) * in + out - 1) / out : std::min(in, i * stride - padding + kernel);
    const bool padded = !adaptive && attrs.integer("include_padding") != 0;
    const int64_t pixels = padded ? std::min(kernel, in + 2 * padding - i * stride) : end - begin;
    const int64_t divided_by = divisor == 0 ? pixels : axis == 0 ? divisor : 1;
    for (int64_t p = begin; p < end; ++p) {
      const auto at = static_cast<size_t>(i * in + p);
      if (node.dtype == DType::kF64) {
        weights.as_mutable<double>()[at] = 1.0 / static_cast<double>(divided_by);
      } else {
        weights.as_mutable<float>()[at] = 1.0f / static_cast<float>(divided_by);
      }
    }
  }
  return graph::constant(weights);
}

Tensor avg_pool_meaning(const Node& node, Inputs in) {
  const Tensor &x = in[0], rows = averages(node, 0, x.dim(2), node.shape[2]);
  const Tensor columns = averages(node, 1, x.dim(3), node.shape[3]);
  return matmul(matmul(rows, x), graph::transpose(columns, 0, 1));
}
Tensor avg_pool_grad_meaning(const Node& node, Inputs in) {
  const Tensor &dy = in[0], rows = averages(node, 0, node.shape[2], dy.dim(2));
  const Tensor columns = averages(node, 1, node.shape[3], dy.dim(3));
  return matmul(matmul(graph::transpose(rows, 0, 1), dy), columns);
}

// The same operation or its reverse with the result's extents `size`.
Tensor record_pool(const OpDef& op, std::span<const Tensor> inputs, Pair size,
                   const graph::Attrs& attrs) {
  return record(op, inputs,
                {{"size", std::vector<int64_t>{size[0], size[1]}},
                 {"kernel", attrs.integers("kernel")},
                 {"stride", attrs.integers("stride")},
                 {"padding", attrs.integers("padding")},
                 {"dilation", attrs.integers("dilation")},
                 {"include_padding", attrs.integer("include_padding")},
                 {"divisor", attrs.integer("divisor")}});
}

std::vector<Tensor> grad_avg_pool(const graph::GradCall& call) {
  const Tensor& x = call.inputs[0];
  return {record_pool(kAvgPool2dGrad, {&call.dy, 1}, {x.dim(2), x.dim(3)}, call.node.attrs)};
}
std::vector<Tensor> grad_avg_pool_grad(const graph::GradCall& call) {
  const Tensor& y = call.inputs[0];
  return {record_pool(kAvgPool2d, {&call.dy, 1}, {y.dim(2), y.dim(3)}, call.node.attrs)};
}

// --- Public functions --------------------------------------------------------------------------

graph::Attrs attrs_of(const PoolOptions& options) {
  auto list = [](const Pair& pair) { return std::vector<int64_t>(pair.begin(), pair.end()); };
  return {{"kernel", list(options.kernel)},
          {"stride", list(options.stride[0] ? options.stride : options.kernel)},
          {"padding", list(options.padding)},
          {"dilation", list(options.dilation)},
          {"include_padding", int64_t{options.count_include_pad}},
          {"divisor", options.divisor_override}};
}

// The output's extents, after all checks.
Pair pooled(const OpDef& op, const Tensor& x, const PoolOptions& options,
            const graph::Attrs& attrs) {
  graph::check_defined(x, op.name, "x");
  const Shape& shape = x.shape();
  if (shape.rank() != 4) {
    fail(ErrorKind::kMalformed, op.name, " of ", to_string(shape),
         ": needs [batch, channels, height, width], or no batch");
  }
  Pair size;
  for (int i : {0, 1}) {
    const int64_t stride = attrs.integers("stride")[i];
    constexpr int64_t kMost = INT32_MAX;  // so that extents do not overflow
    const auto [least, largest] = std::minmax({options.kernel[i], stride, options.dilation[i]});
    if (least < 1 || largest > kMost || options.padding[i] < 0 ||
        options.padding[i] > options.kernel[i] / 2) {
      fail(ErrorKind::kMalformed, op.name, ": kernel ", options.kernel[i], ", stride ", stride,
           ", dilation ", options.dilation[i], " must be from 1 to ", kMost, " and padding ",
           options.padding[i], " at most half the kernel");
    }
    // Where the last window that fits begins; with ceil_mode, one more may lack what its stride is
    // larger than 1, if it begins within the image or the padding before it.
    const int64_t room =
        shape[2 + i] + 2 * options.padding[i] - options.dilation[i] * (options.kernel[i] - 1) - 1;
    const int64_t steps = room + (options.ceil_mode ? stride - 1 : 0);
    if (steps < 0) {
      fail(ErrorKind::kMalformed, op.name, " of ", to_string(shape), ": the window of ",
           options.kernel[i], " is larger than the padded image");
    }
    size[i] = steps / stride + 1;
    if (options.ceil_mode && (size[i] - 1) * stride >= shape[2 + i] + options.padding[i]) --size[i];
    for (int64_t o = 0; o < size[i]; ++o) {
      // The first pixel that the window's steps meet inside.
      const int64_t begin = o * stride - options.padding[i], step = options.dilation[i];
      const int64_t first = begin < 0 ? begin + (-begin + step - 1) / step * step : begin;
      if (first >= shape[2 + i] || first > begin + (options.kernel[i] - 1) * step) {
        fail(ErrorKind::kMalformed, op.name, " of ", to_string(shape),
             ": a window sees nothing but padding");
      }
    }
  }
  return size;
}

PoolOptions as_options(const Pool1dOptions& options) {
  return {.kernel = {1, options.kernel},
          .stride = {1, options.stride ? options.stride : options.kernel},
          .padding = {0, options.padding},
          .dilation = {1, options.dilation},
          .count_include_pad = options.count_include_pad,
          .ceil_mode = options.ceil_mode};
}

// --- Cases -------------------------------------------------------------------------------------

struct PoolCase {
  const char* label;
  Shape x;
  PoolOptions options;
  bool average;  // possible without dilation
};

const std::vector<PoolCase>& pool_cases() {
  static const std::vector<PoolCase> cases = {
      {"2x2", {2, 3, 6, 8}, {.kernel = {2, 2}}, true},
      {"2x2 with a rest", {1, 2, 7, 5}, {.kernel = {2, 2}}, true},
      {"overlapping 3x3", {2, 2, 7, 9}, {.kernel = {3, 3}, .stride = {2, 1}}, true},
      {"padded", {1, 3, 6, 7}, {.kernel = {3, 2}, .stride = {2, 2}, .padding = {1, 1}}, true},
      {"dilated",
       {1, 2, 9, 8},
       {.kernel = {2, 3}, .stride = {1, 2}, .padding = {0, 1}, .dilation = {3, 2}},
       false},
      {"everything", {2, 2, 4, 5}, {.kernel = {4, 5}}, true},
      {"2x2 beyond the image", {1, 2, 7, 5}, {.kernel = {2, 2}, .ceil_mode = true}, true},
      {"1x2 beyond the image", {2, 1, 3, 7}, {.kernel = {1, 2}, .ceil_mode = true}, true},
      {"beyond the padding",
       {2, 2, 6, 8},
       {.kernel = {3, 4}, .stride = {2, 3}, .padding = {1, 2}, .ceil_mode = true},
       true},
      {"larger than the image",
       {2, 1, 2, 3},
       {.kernel = {3, 4}, .stride = {2, 3}, .ceil_mode = true},
       true},
      {"a divisor",
       {1, 2, 5, 6},
       {.kernel = {3, 2},
        .stride = {2, 2},
        .padding = {1, 0},
        .ceil_mode = true,
        .divisor_override = 5},
       true},
  };
  return cases;
}

// `count` images like the case's x, or, for gradients, one like its result at the end.
std::vector<OpCase> max_cases(bool gradient) {
  std::vector<OpCase> cases;
  for (const PoolCase& test : pool_cases()) {
    const graph::Attrs attrs = attrs_of(test.options);
    const Tensor x = graph::constant(Array::zeros(DType::kF32, test.x));
    const Pair size = pooled(kMaxPool2d, x, test.options, attrs);
    const Shape other = gradient ? Shape{test.x[0], test.x[1], size[0], size[1]} : test.x;
    for (DType dtype : {DType::kF32, DType::kF64}) {
      cases.push_back({str(test.label, " ", name(dtype)),
                       {{dtype, test.x}, {dtype, other}},
                       [&, gradient, attrs](Inputs in) {
                         return record_pool(gradient ? kMaxPool2dGrad : kMaxPool2d, in,
                                            pooled(kMaxPool2d, in[0], test.options, attrs), attrs);
                       },
                       -1,
                       1,
                       1e-6});
    }
  }
  return cases;
}

std::vector<OpCase> avg_cases() {
  std::vector<OpCase> cases;
  for (const PoolCase& test : pool_cases()) {
    if (!test.average) continue;
    for (bool include : {true, false}) {
      for (DType dtype : {DType::kF32, DType::kF64}) {
        cases.push_back({str(test.label, include ? " " : ", padding not counted ", name(dtype)),
                         {{dtype, test.x}},
                         [&, include](Inputs in) {
                           PoolOptions options = test.options;
                           options.count_include_pad = include;
                           return avg_pool2d(in[0], options);
                         }});
      }
    }
  }
  for (Pair size : {Pair{1, 1}, Pair{3, 2}, Pair{7, 9}}) {
    for (DType dtype : {DType::kF32, DType::kF64}) {
      cases.push_back({str("adaptive ", size[0], " ", name(dtype)),
                       {{dtype, {2, 3, 7, 5}}},
                       [size](Inputs in) { return adaptive_avg_pool2d(in[0], size); }});
    }
  }
  return cases;
}

std::vector<OpCase> avg_grad_cases() {
  std::vector<OpCase> cases;
  for (const OpCase& test : avg_cases()) {
    const Tensor x = graph::constant(Array::zeros(test.inputs[0].dtype, test.inputs[0].shape));
    const graph::NodePtr node = test.build({&x, 1}).node();
    const Pair size = {x.dim(2), x.dim(3)};
    cases.push_back({test.label, {{node->dtype, node->shape}}, [node, size](Inputs in) {
                       return record_pool(kAvgPool2dGrad, in, size, node->attrs);
                     }});
  }
  return cases;
}

}  // namespace

const OpDef kMaxPool2d = {.name = "max_pool2d",
                          .infer = infer_max_pool,
                          .kernel = run_max_pool,
                          .meaning = max_pool_meaning,
                          .grad = grad_max_pool,
                          .cases = [] { return max_cases(false); }};
const OpDef kMaxPool2dGrad = {.name = "max_pool2d_grad",
                              .infer = infer_max_pool_grad,
                              .kernel = run_max_pool_grad,
                              .meaning = max_pool_grad_meaning,
                              .grad = grad_max_pool_grad,
                              .cases = [] { return max_cases(true); }};
const OpDef kAvgPool2d = {.name = "avg_pool2d",
                          .infer = infer_avg_pool,
                          .kernel = run_avg_pool,
                          .meaning = avg_pool_meaning,
                          .grad = grad_avg_pool,
                          .cases = avg_cases};
const OpDef kAvgPool2dGrad = {.name = "avg_pool2d_grad",
                              .infer = infer_avg_pool,
                              .kernel = run_avg_pool_grad,
                              .meaning = avg_pool_grad_meaning,
                              .grad = grad_avg_pool_grad,
                              .cases = avg_grad_cases};

namespace {

// body(x) of images or signals of any float type, with or without a batch: kernels are those of
// float32 and float64.
template <class Body>
Tensor of_images(const OpDef& op, const Tensor& x, int rank, const Body& body) {
  return with_batch(x, rank,
                    [&](const Tensor& images) { return in_common_float(op.name, body, images); });
}

}  // namespace

Tensor max_pool2d(const Tensor& x, const PoolOptions& options) {
  return of_images(kMaxPool2d, x, 4, [&](const Tensor& images) {
    const graph::Attrs attrs = attrs_of(options);
    const Tensor inputs[] = {images, images};
    return record_pool(kMaxPool2d, inputs, pooled(kMaxPool2d, images, options, attrs), attrs);
  });
}

Found max_pool2d_with_indices(const Tensor& x, const PoolOptions& options) {
  const Tensor values = max_pool2d(x, options);
  const graph::NoGradScope no_grad;
  const Tensor indices = with_batch(x, 4, [&](const Tensor& images) {
    constexpr int64_t kMostInFloat = int64_t{1} << 24;
    const int64_t height = images.dim(2), width = images.dim(3);
    const DType dtype = height * width > kMostInFloat ? DType::kF64 : DType::kF32;
    return in_common_float(
        kMaxPool2d.name,
        [&](const Tensor& wide, const Tensor& numbers) {
          const graph::Attrs attrs = attrs_of(options);
          const Tensor inputs[] = {wide, graph::expand(numbers, wide.shape())};
          return record_pool(kMaxPool2d, inputs, pooled(kMaxPool2d, wide, options, attrs), attrs);
        },
        images, reshape(graph::contiguous(arange(0, height * width), dtype), {height, width}));
  });
  return {values, graph::contiguous(indices, DType::kI64)};
}

Tensor avg_pool2d(const Tensor& x, const PoolOptions& options) {
  if (options.dilation != Pair{1, 1}) {
    fail(ErrorKind::kMalformed, "avg_pool2d: averages have no dilation, but it is ",
         options.dilation[0], " and ", options.dilation[1]);
  }
  return of_images(kAvgPool2d, x, 4, [&](const Tensor& images) {
    const graph::Attrs attrs = attrs_of(options);
    return record_pool(kAvgPool2d, {&images, 1}, pooled(kAvgPool2d, images, options, attrs), attrs);
  });
}

Tensor adaptive_avg_pool2d(const Tensor& x, Pair size) {
  return of_images(kAvgPool2d, x, 4, [&](const Tensor& images) {
    graph::check_defined(images, "adaptive_avg_pool2d", "x");
    const bool no_pixels = images.rank() == 4 && images.dim(2) * images.dim(3) == 0;
    if (size[0] < 1 || size[1] < 1 || no_pixels) {
      fail(ErrorKind::kMalformed, "adaptive_avg_pool2d of ", to_string(images.shape()),
           ": image and result must have pixels");
    }
    return record_pool(kAvgPool2d, {&images, 1}, size, attrs_of({.kernel = {0, 0}}));
  });
}

Tensor max_pool1d(const Tensor& x, const Pool1dOptions& options) {
  return with_batch(x, 3, [&](const Tensor& signals) {
    return as_signal(max_pool2d(as_image("max_pool1d", signals), as_options(options)));
  });
}
Tensor avg_pool1d(const Tensor& x, const Pool1dOptions& options) {
  return with_batch(x, 3, [&](const Tensor& signals) {
    return as_signal(avg_pool2d(as_image("avg_pool1d", signals), as_options(options)));
  });
}
Tensor adaptive_avg_pool1d(const Tensor& x, int64_t size) {
  return with_batch(x, 3, [&](const Tensor& signals) {
    return as_signal(adaptive_avg_pool2d(as_image("adaptive_avg_pool1d", signals), {1, size}));
  });
}

}  // namespace lumen::ops
