// Random numbers inside graphs: functions of a key, so that they are the same for any number of
// threads and are made again in the backward pass instead of being kept.
#include "lib/base/error.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"
#include "lib/ops/random_key.h"

namespace lumen::ops {

extern const graph::OpDef kUniform, kNormal, kDropout;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;
using Inputs = std::span<const Tensor>;

graph::TypedShape infer_fill(const Node& node) {
  require_key(node, *node.inputs[0]);
  Shape shape;
  for (int64_t extent : node.attrs.integers("shape")) shape.push_back(extent);
  return {DType::kF32, shape};
}

graph::TypedShape infer_dropout(const Node& node) {
  const Node& x = *node.inputs[0];
  if (x.dtype != DType::kF32) shape_error(node, "x must be float32");
  require_key(node, *node.inputs[1]);
  return {DType::kF32, x.shape};
}

// uniform: a = low, b = high; normal: a = mean, b = standard deviation.
template <auto kFill>
void run_fill(const KernelCall& call) {
  kFill(*call.pool, random_key(*call.node, call.inputs[0]), call.output.shape.elements(),
        static_cast<float>(call.node->attrs.real("a")),
        static_cast<float>(call.node->attrs.real("b")), call.output.as<float>());
}

void run_dropout(const KernelCall& call) {
  kernels::dropout(*call.pool, random_key(*call.node, call.inputs[1]), call.output.shape.elements(),
                   call.node->attrs.real("p"), call.inputs[0].as<const float>(),
                   call.output.as<float>());
}

Tensor dropout_meaning(const Node& node, Inputs in) {
  const double p = node.attrs.real("p");
  const Tensor u = uniform(in[1], node.attrs.integer("stream"), in[0].shape());
  const Tensor kept = sub(graph::scalar(1), less_than(u, graph::scalar(static_cast<float>(p))));
  const float scale = p < 1 ? static_cast<float>(1 / (1 - p)) : 0;
  return mul(in[0], mul(kept, graph::scalar(scale)));
}

std::vector<Tensor> grad_dropout(const graph::GradCall& call) {
  return {record(kDropout, {call.dy, call.inputs[1]}, call.node.attrs), {}};
}

std::vector<OpCase> fill_cases(const OpDef& op) {
  std::vector<OpCase> cases;
  for (int64_t n : {0, 1, 63, 64, 1000}) {
    const graph::Attrs attrs{
        {"stream", int64_t{5}}, {"shape", std::vector<int64_t>{n, 3}}, {"a", -1.0}, {"b", 2.5}};
    cases.push_back({str("n=", n),
                     {i32({2})},
                     [&op, attrs](Inputs in) { return record(op, in, attrs); },
                     0,
                     3,
                     0});
  }
  return cases;
}

std::vector<OpCase> dropout_cases() {
  std::vector<OpCase> cases;
  for (double p : {0.25, 1.0}) {
    for (int64_t n : {0, 1, 63, 200}) {
      cases.push_back({str("n=", n, " p=", p),
                       {f32({n, 5}), i32({2})},
                       [p](Inputs in) { return dropout(in[0], p, in[1], 3); },
                       -2,
                       2,
                       1e-6});
    }
  }
  return cases;
}

Tensor fill(const OpDef& op, const Tensor& key, int64_t stream, const Shape& shape, double a,
            double b) {
  std::vector<int64_t> extents;
  for (int i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
  return record(op, {key}, {{"stream", stream}, {"shape", extents}, {"a", a}, {"b", b}});
}

}  // namespace

const OpDef kUniform = {.name = "uniform",
                        .infer = infer_fill,
                        .kernel = run_fill<kernels::uniform_fill>,
                        .grad = graph::no_gradient,
                        .random = true,
                        .cases = [] { return fill_cases(kUniform); }};
const OpDef kNormal = {.name = "normal",
                       .infer = infer_fill,
                       .kernel = run_fill<kernels::normal_fill>,
                       .grad = graph::no_gradient,
                       .random = true,
                       .cases = [] { return fill_cases(kNormal); }};
const OpDef kDropout = {.name = "dropout",
                        .infer = infer_dropout,
                        .kernel = run_dropout,
                        .meaning = dropout_meaning,
                        .grad = grad_dropout,
                        .cases = dropout_cases};

Tensor uniform(const Tensor& key, int64_t stream, const Shape& shape, double low, double high) {
  return fill(kUniform, key, stream, shape, low, high);
}

Tensor normal(const Tensor& key, int64_t stream, const Shape& shape, double mean, double stddev) {
  return fill(kNormal, key, stream, shape, mean, stddev);
}

Tensor dropout(const Tensor& x, double p, const Tensor& key, int64_t stream) {
  if (!(p >= 0 && p <= 1)) {
    fail(ErrorKind::kMalformed, "dropout: the probability must be from 0 to 1, not ", p);
  }
  if (p == 0) return x;
  return record(kDropout, {x, key}, {{"p", p}, {"stream", stream}});
}

}  // namespace lumen::ops
