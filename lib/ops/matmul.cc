// The general product of matrices, of float32 in fast kernels.
#include "lib/kernels/matmul.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/round_up.h"
#include "lib/graph/cost.h"
#include "lib/graph/mixed_precision.h"
#include "lib/kernels/narrow_product.h"
#include "lib/kernels/typed.h"
#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/lookup_product.h"

namespace lumen::ops {
namespace {

using graph::in_bf16;
using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::Operand;
using graph::product_operand;
using graph::record;
using graph::stored_bytes;

// The attr by which a product of narrow floats is float32, as gradients are.
constexpr const char* kWideAttr = "wide";

// Whether float16 or bfloat16 numbers are multiplied as they are stored.
bool is_narrow_product(const Node& node) {
  return !in_bf16(node) && (is_narrow(node.inputs[0]->dtype) || is_narrow(node.inputs[1]->dtype));
}

graph::TypedShape infer_matmul(const Node& node) {
  const Node &a = *node.inputs[0], &b = *node.inputs[1];
  auto takes = [&](DType dtype) {
    if (in_bf16(node)) return dtype == DType::kF32 || dtype == DType::kBF16;
    if (is_narrow_product(node)) return is_float32_or_narrower(dtype);
    return dtype == a.dtype && !is_quantized(dtype);
  };
  if (!takes(a.dtype) || !takes(b.dtype)) {
    shape_error(node, "both must be of one type that is not quantised");
  }
  bool fits = a.shape.rank() == b.shape.rank() && a.shape.rank() >= 2 && a.shape[-1] == b.shape[-2];
  for (int i = 0; fits && i < a.shape.rank() - 2; ++i) fits = a.shape[i] == b.shape[i];
  if (!fits) shape_error(node, "needs [..., m, k] and [..., k, n]");
  Shape shape = a.shape;
  shape[-1] = b.shape[-1];
  if (in_bf16(node)) return {graph::stored_type(node), shape};
  return {node.attrs.has(kWideAttr) ? DType::kF32 : promote(a.dtype, b.dtype), shape};
}

// Element offset of batch `index` (all axes but the last two).
int64_t batch_offset(const Operand& x, int64_t index) {
  int64_t offset = 0;
  for (int axis = x.shape.rank() - 3; axis >= 0; --axis) {
    offset += index % x.shape[axis] * x.strides[axis];
    index /= x.shape[axis];
  }
  return offset;
}

// Whether each product is for one thread: they are many, and so small that those who share one wait
// for each other most of the time.
bool are_for_one_thread(const Node& node) {
  constexpr int64_t kMany = 8, kSmall = int64_t{1} << 24;  // products, multiplications in one
  const int64_t rows_columns = node.shape[-2] * node.shape[-1];
  return rows_columns > 0 && rows_columns * node.inputs[0]->shape[-1] <= kSmall &&
         node.shape.elements() / rows_columns >= kMany;
}

size_t workspace_for(const Node& node, int threads) {
  const int64_t m = node.shape[-2], n = node.shape[-1], k = node.inputs[0]->shape[-1];
  const DType dtype = node.inputs[0]->dtype;
  if (is_narrow_product(node)) {
    return kernels::gemm_narrow_workspace_bytes({dtype, node.inputs[1]->dtype, node.dtype}, m, n, k,
                                                threads);
  }
  return dtype == DType::kF64 ? kernels::gemm_f64_workspace_bytes(m, k, threads)
                              : kernels::gemm_workspace_bytes(m, n, k, threads);
}
size_t workspace_of_one(const Node& node) {
  const size_t bytes = workspace_for(node, 1);
  return static_cast<size_t>(round_up(static_cast<int64_t>(bytes), 64));
}

void run_matmul(const KernelCall& call) {
  const Operand &a = call.inputs[0], &b = call.inputs[1];
  const int rank = a.shape.rank();
  const int64_t m = a.shape[-2], k = a.shape[-1], n = b.shape[-1];
  const int64_t batches = m * n > 0 ? call.output.shape.elements() / (m * n) : 0;
  auto at = [](const Operand& x, int64_t i) {
    return x.data + row_bytes(x.dtype, batch_offset(x, i));
  };
  auto result = [&](int64_t i) {
    return call.output.data + row_bytes(call.output.dtype, i * m * n);
  };
  auto matrix = [&](const Operand& x, int64_t i) {
    return kernels::TypedOperand{at(x, i), x.dtype, {x.strides[rank - 2], x.strides[rank - 1]}};
  };
  auto multiply = [&](ThreadPool& pool, int64_t i, std::byte* workspace) {
    if (!is_float(a.dtype)) {
      return kernels::matmul_typed(pool, matrix(a, i), matrix(b, i), m, n, k, call.output.dtype,
                                   result(i));
    }
    if (a.dtype == DType::kF64) {
      return kernels::gemm_f64(
          pool, kernels::StridedProduct<double>{.m = m,
                                                .n = n,
                                                .k = k,
                                                .a = reinterpret_cast<const double*>(at(a, i)),
                                                .a_row_stride = a.strides[rank - 2],
                                                .a_col_stride = a.strides[rank - 1],
                                                .b = reinterpret_cast<const double*>(at(b, i)),
                                                .b_row_stride = b.strides[rank - 2],
                                                .b_col_stride = b.strides[rank - 1],
                                                .c = reinterpret_cast<double*>(result(i)),
                                                .c_stride = n,
                                                .workspace = workspace});
    }
    auto finish = [&](int64_t row, int64_t begin, int64_t end, float* piece) {
      (*call.epilogue)(i * m + row, begin, end, piece);
    };
    const kernels::Epilogue epilogue = finish;
    const auto gemm = is_narrow_product(*call.node) ? kernels::gemm_narrow : kernels::gemm;
    gemm(pool, {.m = m,
                .n = n,
                .k = k,
                .a = reinterpret_cast<const float*>(at(a, i)),
                .a_row_stride = a.strides[rank - 2],
                .a_col_stride = a.strides[rank - 1],
                .b = reinterpret_cast<const float*>(at(b, i)),
                .b_row_stride = b.strides[rank - 2],
                .b_col_stride = b.strides[rank - 1],
                .c = reinterpret_cast<float*>(result(i)),
                .c_stride = n,
                .workspace = workspace,
                .bf16 = in_bf16(*call.node),
                .epilogue = call.epilogue ? &epilogue : nullptr,
                .a_type = a.dtype,
                .b_type = b.dtype,
                .c_type = call.output.dtype});
  };
  if (call.pool->threads() == 1 || !are_for_one_thread(*call.node)) {
    for (int64_t i = 0; i < batches; ++i) multiply(*call.pool, i, call.workspace);
    return;
  }
  const size_t share = workspace_of_one(*call.node);
  const bool exact = kernels::ExactProductsScope::active();
  call.pool->parallel_for(batches, 1, [&](int64_t begin, int64_t end, int thread) {
    static thread_local ThreadPool alone(1);
    const kernels::ExactProductsScope scope(exact);
    std::byte* const workspace = call.workspace + static_cast<size_t>(thread) * share;
    for (int64_t i = begin; i < end; ++i) multiply(alone, i, workspace);
  });
}

size_t matmul_workspace(const Node& node, int threads) {
  const size_t together = workspace_for(node, threads);
  if (!are_for_one_thread(node)) return together;
  return std::max(together, static_cast<size_t>(threads) * workspace_of_one(node));
}

graph::Bf16Input matmul_bf16_input(const Node& node, size_t i) {
  const bool takes =
      i < 2 && in_bf16(node) &&
      kernels::gemm_takes_bf16(node.shape[-2], node.shape[-1], node.inputs[0]->shape[-1]);
  return takes ? graph::Bf16Input::kRounded : graph::Bf16Input::kNo;
}

bool matmul_gives_bf16(const Node& node) {
  return in_bf16(node) &&
         kernels::gemm_gives_bf16(node.shape[-2], node.shape[-1], node.inputs[0]->shape[-1]);
}

// Σ_k a[..., m, 1, k] · bᵀ[..., 1, n, k].
Tensor matmul_meaning(const Node& node, Inputs in) {
  Shape left = in[0].shape(), right = node.shape;
  left[-1] = 1;
  left.push_back(in[0].dim(-1));
  right[-2] = 1;
  right.push_back(in[0].dim(-1));
  auto operand = [&](const Tensor& x) {
    return is_narrow_product(node) ? graph::contiguous(x, DType::kF32) : product_operand(node, x);
  };
  const Tensor a = graph::reshape(operand(in[0]), left);
  const Tensor b = graph::reshape(graph::transpose(operand(in[1]), -1, -2), right);
  const Tensor y = graph::reshape(sum(mul(a, b), -1), node.shape);
  return y.dtype() == node.dtype ? y : graph::contiguous(y, node.dtype);
}

std::vector<Tensor> grad_matmul(const graph::GradCall& call) {
  const graph::AutocastScope precision = graph::gradient_precision(call.node);
  const Tensor &a = call.inputs[0], &b = call.inputs[1];
  return {gradient_product(call.dy, graph::transpose(b, -1, -2)),
          gradient_product(graph::transpose(a, -1, -2), call.dy)};
}

graph::Cost matmul_cost(const Node& node) {
  const Node &a = *node.inputs[0], &b = *node.inputs[1];
  return {2 * static_cast<double>(node.shape.elements()) * static_cast<double>(a.shape[-1]),
          stored_bytes(node) + stored_bytes(a) + stored_bytes(b)};
}

std::vector<OpCase> matmul_cases() {
  std::vector<OpCase> cases;
  auto build = [](Inputs in) { return matmul(in[0], in[1]); };
  auto add_case = [&](Shape a, Shape b) {
    cases.push_back({str(to_string(a), " x ", to_string(b)),
                     {{DType::kF32, a}, {DType::kF32, b}},
                     build,
                     -1,
                     1,
                     2e-6});
  };
  add_case({1, 1}, {1, 1});
  add_case({3, 5}, {5, 7});
  add_case({33, 65}, {65, 40});
  add_case({2, 3, 4, 5}, {2, 3, 5, 6});
  add_case({9, 33, 40}, {9, 40, 20});
  add_case({3, 4, 5}, {5, 6});
  add_case({0, 5}, {5, 6});
  add_case({4, 0}, {0, 6});
  cases.push_back({"bias",
                   {f32({2, 40, 64}), f32({2, 64, 70}), f32({70})},
                   [](Inputs in) { return add(matmul(in[0], in[1]), in[2]); },
                   -1,
                   1,
                   2e-6});
  cases.push_back(
      {"added to a transposed product",
       {f32({64, 50}), f32({64, 33}), f32({50, 33})},
       [](Inputs in) { return sub(in[2], matmul(graph::transpose(in[0], 0, 1), in[1])); },
       -1,
       1,
       2e-6});
  cases.push_back({"f64", {{DType::kF64, {2, 3, 4}}, {DType::kF64, {4, 300}}}, build, -1, 1});
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (const auto& [left, right] : {std::pair<Shape, Shape>{{3, 5}, {5, 7}},
                                      {{2, 40, 70}, {70, 33}},
                                      {{1, 300}, {300, 40}},
                                      {{37, 300}, {300, 1}},
                                      {{2, 0}, {0, 3}}}) {
      cases.push_back({str(name(dtype), " ", to_string(left), " x ", to_string(right)),
                       {{dtype, left}, {dtype, right}},
                       build,
                       -1,
                       1,
                       dtype == DType::kF16 ? 2e-3 : 1e-2});
    }
    cases.push_back({str(name(dtype), " transposed"),
                     {{dtype, {65, 33}}, {dtype, {48, 65}}},
                     [](Inputs in) {
                       return matmul(graph::transpose(in[0], 0, 1), graph::transpose(in[1], 0, 1));
                     },
                     -1,
                     1,
                     dtype == DType::kF16 ? 2e-3 : 1e-2});
  }
  for (const auto& [a, b] : {std::pair{DType::kBF16, DType::kBF16},
                             {DType::kF16, DType::kF16},
                             {DType::kF32, DType::kBF16},
                             {DType::kF16, DType::kF32},
                             {DType::kBF16, DType::kF16}}) {
    const std::string types = str(name(a), " and ", name(b), " in float32, ");
    auto wide = [](Inputs in) { return gradient_product(in[0], in[1]); };
    for (const auto& [left, right] : {std::pair<Shape, Shape>{{3, 5}, {5, 7}},
                                      {{2, 40, 70}, {2, 70, 33}},
                                      {{9, 300}, {300, 40}},
                                      {{1, 300}, {300, 40}},
                                      {{37, 3000}, {3000, 1}},
                                      {{37, 1}, {1, 50}},
                                      {{2, 0}, {0, 3}}}) {
      cases.push_back({str(types, to_string(left), " x ", to_string(right)),
                       {{a, left}, {b, right}},
                       wide,
                       -1,
                       1,
                       2e-5});
    }
    for (int64_t rows : {65, 5}) {
      cases.push_back({str(types, "transposed, added ", rows),
                       {{a, {65, rows}}, {b, {48, 65}}, f32({rows, 48})},
                       [](Inputs in) {
                         return add(in[2], gradient_product(graph::transpose(in[0], 0, 1),
                                                            graph::transpose(in[1], 0, 1)));
                       },
                       -1,
                       1,
                       2e-5});
    }
  }
  for (DType dtype : {DType::kI32, DType::kI64, DType::kI8, DType::kU8, DType::kBool}) {
    cases.push_back({str(name(dtype)), {{dtype, {2, 67, 300}}, {dtype, {300, 37}}}, build});
    cases.push_back(
        {str(name(dtype), " transposed"), {{dtype, {3, 5}}, {dtype, {40, 3}}}, [](Inputs in) {
           return matmul(graph::transpose(in[0], 0, 1), graph::transpose(in[1], 0, 1));
         }});
  }
  cases.push_back({"vectors", {f32({2, 5, 4}), f32({4})}, build, -1, 1});
  cases.push_back({"transposed",
                   {f32({5, 3}), f32({7, 5})},
                   [](Inputs in) {
                     return matmul(graph::transpose(in[0], 0, 1), graph::transpose(in[1], 0, 1));
                   },
                   -1,
                   1,
                   2e-6});
  return cases;
}

}  // namespace

extern const OpDef kMatmul;
const OpDef kMatmul = {.name = "matmul",
                       .kind = graph::OpKind::kContraction,
                       .infer = infer_matmul,
                       .kernel = run_matmul,
                       .workspace = matmul_workspace,
                       .layout = graph::InputLayout::kAny,
                       .takes_epilogue = true,
                       .meaning = matmul_meaning,
                       .grad = grad_matmul,
                       .autocast = graph::Autocast::kLow,
                       .bf16_input = matmul_bf16_input,
                       .gives_bf16 = matmul_gives_bf16,
                       .reassociate = matmul_with_lookup,
                       .cost = matmul_cost,
                       .cases = matmul_cases};

namespace {

// [..., m, k] · [..., k, n] of one type that has products.
Tensor product(const Tensor& a, const Tensor& b) {
  auto leading = [](const Tensor& x) {
    Shape shape;
    for (int i = 0; i < x.rank() - 2; ++i) shape.push_back(x.dim(i));
    return shape;
  };
  const Shape batch = graph::broadcast("matmul", leading(a), leading(b));
  auto widened = [&](const Tensor& x) {
    Shape shape = batch;
    shape.push_back(x.dim(-2));
    shape.push_back(x.dim(-1));
    return graph::expand(x, shape);
  };
  return record(kMatmul, {widened(a), widened(b)});
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (a.rank() == 0 || b.rank() == 0 || is_quantized(a.dtype()) || is_quantized(b.dtype())) {
    return record(kMatmul, {a, b});  // infer names the mistake
  }
  const DType dtype = promote(a.dtype(), b.dtype());
  auto typed = [&](const Tensor& x) {
    if (x.dtype() == dtype) return x;
    const bool as_stored = dtype == DType::kF32 && is_narrow(x.dtype());
    return as_stored && graph::autocast_dtype() == DType::kF32 ? x : graph::contiguous(x, dtype);
  };
  // What is narrow by itself needs no rounding.
  const graph::AutocastScope precision(is_narrow(dtype) ? DType::kF32 : graph::autocast_dtype());
  Tensor y = product(typed(a.rank() == 1 ? unsqueeze(a, 0) : a),
                     typed(b.rank() == 1 ? unsqueeze(b, 1) : b));
  if (b.rank() == 1) y = squeeze(y, -1);
  if (a.rank() == 1) y = squeeze(y, b.rank() == 1 ? -1 : -2);
  return y;
}

Tensor gradient_product(const Tensor& a, const Tensor& b) {
  graph::check_defined(a, kMatmul.name, "a");
  graph::check_defined(b, kMatmul.name, "b");
  const Tensor left = before_widening(a), right = before_widening(b);
  const bool is_any_narrow = is_narrow(left.dtype()) || is_narrow(right.dtype());
  if (is_any_narrow && left.dim(-1) == 1 && is_float32_or_narrower(left.dtype()) &&
      is_float32_or_narrower(right.dtype())) {  // nothing is added up
    return mul(graph::contiguous(left, DType::kF32), graph::contiguous(right, DType::kF32));
  }
  if (!is_narrow(left.dtype()) || !is_narrow(right.dtype())) return matmul(a, b);
  const graph::AutocastScope unrounded(DType::kF32);
  return record(kMatmul, {left, right}, {{kWideAttr, int64_t{1}}});
}

Tensor dot(const Tensor& a, const Tensor& b) {
  if (a.rank() != 1 || b.rank() != 1 || a.dim(0) != b.dim(0)) {
    fail(ErrorKind::kMalformed, "dot: needs two vectors of one length, not ", to_string(a.shape()),
         " and ", to_string(b.shape()));
  }
  return matmul(a, b);
}

Tensor outer(const Tensor& a, const Tensor& b) {
  if (a.rank() != 1 || b.rank() != 1) {
    fail(ErrorKind::kMalformed, "outer: needs two vectors, not ", to_string(a.shape()), " and ",
         to_string(b.shape()));
  }
  return mul(unsqueeze(a, 1), b);
}

}  // namespace lumen::ops
