// Mistakes of the systems that Lumen succeeds, one test each, and what else is refused or special.
#include <cmath>

#include "lib/autograd/autograd.h"
#include "lib/base/testing.h"
#include "lib/graph/plan.h"
#include "lib/ops/loss.h"
#include "lib/ops/operators.h"

using namespace lumen;
using graph::Tensor;
using testing::contains;
using testing::refusal;

namespace {

template <typename T>
Tensor vector_of(const std::vector<T>& values) {
  return graph::constant(Array::from<T>(values, {static_cast<int64_t>(values.size())}));
}

Tensor floats(const std::vector<float>& values) {
  return graph::constant(values, {static_cast<int64_t>(values.size())});
}

std::vector<float> values(const Tensor& x) {
  const Array array = graph::contiguous(x, DType::kF32).eval();
  const auto span = array.as<float>();
  return {span.begin(), span.end()};
}

using Floats = std::vector<float>;

}  // namespace

TEST_CASE("clamp does not exchange its bounds") {
  CHECK(values(ops::clamp(floats({-3, 0.25, 3}), -1, 1)) == Floats{-1, 0.25, 1});
  CHECK(values(ops::clamp(floats({-3, 0.25, 3}), 1, -1)) == Floats{-1, -1, -1});
}

TEST_CASE("a power keeps the sign of its base") {
  CHECK(values(ops::pow(floats({-2, -2}), floats({3, 2}))) == Floats{-8, 4});
  CHECK(values(ops::pow(floats({0, 0}), floats({0, 2}))) == Floats{1, 0});
  CHECK(std::isnan(ops::pow(graph::scalar(-2), 0.5).item()));
}

TEST_CASE("the sign of small and of no numbers is exact") {
  CHECK(values(ops::sign(floats({1e-30f, -1e-30f, 0, -0.0f}))) == Floats{1, -1, 0, 0});
  for (DType dtype : {DType::kI64, DType::kI32, DType::kI8, DType::kF64}) {
    const Tensor signs = ops::sign(graph::contiguous(floats({7, -3, 0, 100, -100}), dtype));
    REQUIRE(signs.dtype() == dtype);
    CHECK(values(graph::contiguous(signs, DType::kF32)) == Floats{1, -1, 0, 1, -1});
  }
  for (DType dtype : {DType::kU8, DType::kBool}) {
    const Tensor signs = ops::sign(graph::contiguous(floats({7, 0}), dtype));
    CHECK(values(graph::contiguous(signs, DType::kF32)) == Floats{1, 0});
  }
}

TEST_CASE("cos is accurate for large angles") {
  CHECK(ops::cos(graph::scalar(1e6f)).item() == Approx(std::cos(1e6)).margin(1e-6));
}

TEST_CASE("maxima pass NaN on and infinities through") {
  const Tensor x = floats({1, NAN, INFINITY});
  CHECK(std::isnan(ops::amax(x, ops::kAllAxes, false).item()));
  CHECK(ops::amax(floats({-INFINITY, -INFINITY}), 0, false).item() == -INFINITY);
  CHECK(std::isnan(ops::maximum(graph::scalar(NAN), graph::scalar(1)).item()));
  CHECK(ops::argmax(x, 0).item() == 1);
}

TEST_CASE("argmax is the first of equals, and equals share the gradient of a maximum") {
  CHECK(ops::argmax(floats({1, 3, 3, 2, 3}), 0).item() == 1);
  CHECK(ops::argmin(floats({1, 0, 3, 0}), 0).item() == 1);
  const Tensor x = autograd::variable(Array::from<float>(Floats{3, 1, 3, 3}, {4}));
  autograd::backward(ops::amax(x, 0, false));
  const Floats g = values(autograd::grad(x));
  CHECK(g[0] == Approx(1.0 / 3));
  CHECK(g[1] == 0);
}

TEST_CASE("flatten takes axes from the end, and slices may be empty") {
  const Tensor x = graph::constant(Array::zeros(DType::kF32, {2, 3, 4}));
  CHECK(ops::flatten(x, -1).shape() == Shape({2, 3, 4}));
  CHECK(ops::flatten(x, -2).shape() == Shape({2, 12}));
  const Tensor none = graph::slice(x, 1, 2, 2);
  CHECK(none.eval().shape() == Shape({2, 0, 4}));
  CHECK(values(ops::sum(none, 1, false)) == Floats(8, 0.0f));
}

TEST_CASE("extents that do not multiply up are refused") {
  const Tensor x = graph::constant(Array::zeros(DType::kF32, {6}));
  for (const Shape& shape : {Shape{-1, -1}, Shape{-2, -3}, Shape{4, -1}}) {
    CHECK(contains(refusal(ErrorKind::kMalformed, [&] { graph::reshape(x, shape); }), "reshape"));
  }
}

TEST_CASE("an index out of range is an error that names it") {
  const Tensor x = floats({1, 2, 3});
  const Tensor index = graph::constant(Array::from<int64_t>(std::vector<int64_t>{0, 3}, {2}));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::take_along(x, index, 0).eval(); }),
                 "index 3"));
  const Tensor ids = graph::constant(Array::from<int32_t>(std::vector<int32_t>{-1}, {1}));
  CHECK(contains(refusal(ErrorKind::kMalformed,
                         [&] {
                           ops::embedding(graph::reshape(x, {3, 1}), ids).eval();
                         }),
                 "index -1"));
  // What int32 does not hold wraps round to no valid index.
  const Tensor far = vector_of<int64_t>({int64_t{1} << 32});
  const Tensor table = graph::reshape(x, {3, 1});
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::embedding(table, far).eval(); }),
                 "out of range"));
  CHECK(std::isnan(ops::cross_entropy(graph::reshape(x, {1, 3}), far).item()));
  CHECK(std::isnan(ops::nll(graph::reshape(x, {1, 3}), far).item()));
  for (const int64_t id : {-1, 5}) {
    const Tensor bad = graph::constant(Array::from<int64_t>(std::vector<int64_t>{0, id}, {2}));
    CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::one_hot(bad, 5).eval(); }),
                   str("index ", id)));
  }
}

TEST_CASE("ranges with steps of tensors that have no axis left") {
  const Tensor x = graph::reshape(graph::iota(14), {1, 1, 1, 1, 1, 1, 2, 7});
  CHECK(values(ops::strided_slice(x, 7, 1, {}, 3)) == Floats{1, 4, 8, 11});
  CHECK(values(ops::strided_slice(x, 7, {}, {}, 2)) == Floats{0, 2, 4, 6, 7, 9, 11, 13});
  CHECK(values(ops::strided_slice(x, 7, {}, {}, -3)) == Floats{6, 3, 0, 13, 10, 7});
}

TEST_CASE("what indexing as in Python refuses") {
  const Tensor x = graph::reshape(floats({1, 2, 3, 4, 5, 6}), {2, 3});
  auto message = [](auto&& body) { return refusal(ErrorKind::kMalformed, body); };
  const Tensor zero = vector_of<int64_t>({0}), three = vector_of<int64_t>({3});
  // A column that is out of range is not one of the next row.
  for (const int64_t column : {3, -4}) {
    const Tensor pair[] = {zero, vector_of<int64_t>({column})};
    CHECK(contains(message([&] { ops::index(x, pair).eval(); }), str("index ", column, " ")));
    CHECK(contains(message([&] { ops::index_put(x, pair, floats({9})).eval(); }), "out of range"));
  }
  const Tensor many[] = {zero, zero, zero}, real[] = {floats({0})}, undefined[] = {Tensor()};
  CHECK(contains(message([&] { ops::index(x, many); }), "1 to one per axis"));
  CHECK(contains(message([&] { ops::index(x, {}); }), "1 to one per axis"));
  CHECK(contains(message([&] { ops::index(x, real); }), "int32 or int64"));
  CHECK(contains(message([&] { ops::index(x, undefined); }), "index"));
  CHECK(contains(message([&] { ops::strided_slice(x, 0, {}, {}, 0); }), "the step is 0"));
  CHECK(values(ops::strided_slice(x, 1, INT64_MIN, INT64_MAX, INT64_MAX)) == Floats{1, 4});
  CHECK(values(ops::strided_slice(x, 1, {}, {}, INT64_MIN)) == Floats{3, 6});
  CHECK(ops::masked_select(ops::zeros({0, 3}), ops::zeros({3})).eval().shape() == Shape{0});
  CHECK(contains(message([&] { ops::tile(x, std::vector<int64_t>(9, 1)); }), "at most 8"));
  CHECK(contains(message([&] { graph::expand(x, {-1, 2, 3}); }), "expand"));
}

// PyTorch's own has a factor that is rounded to float32 (scripts/make_op_goldens.py).
TEST_CASE("the gradient of hard_sigmoid is as exact as its input") {
  const Tensor x = autograd::variable(Array::from<double>(std::vector<double>{-4, 0.3, 2.5}, {3}));
  autograd::backward(ops::sum(ops::hard_sigmoid(x), 0, false));
  const Array slope = autograd::grad(x).eval();
  REQUIRE(slope.dtype() == DType::kF64);
  const auto slopes = slope.as<double>();
  CHECK(slopes[0] == 0);
  CHECK(std::abs(slopes[1] - 1.0 / 6) < 1e-16);
}

TEST_CASE("mistakes of types are named") {
  const Tensor flags = ops::gt(floats({1, -1}), 0);
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::sub(flags, flags); }), "bool"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::pow(ops::arange(0, 3), -1); }),
                 "negative powers"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::amax(ops::zeros({0}), 0, false); }),
                 "no elements"));
  CHECK(contains(refusal(ErrorKind::kMalformed,
                         [&] {
                           ops::sum(floats({1}), {0, 0}, false);
                         }),
                 "twice"));
  const Tensor blocks = graph::constant(Array::zeros(DType::kQ8_0, {2, 32}));
  for (const auto op : {ops::cumsum, ops::cumprod}) {
    CHECK(contains(refusal(ErrorKind::kMalformed, [&] { op(blocks, 0); }), "q8_0"));
  }
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::prod(blocks, 0, false); }), "q8_0"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::tril(blocks); }), "q8_0"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::zeros({32}, DType::kQ8_0); }), "q8_0"));
}

TEST_CASE("integers beyond what double tells apart are counted one by one") {
  constexpr int64_t kBig = int64_t{1} << 60;
  const Array array = ops::arange(kBig, kBig + 3).eval();
  const auto list = array.as<int64_t>();
  CHECK(std::vector(list.begin(), list.end()) == std::vector{kBig, kBig + 1, kBig + 2});
  CHECK(ops::arange(-kBig - 1, -kBig - 6, -2).dim(0) == 3);
}

TEST_CASE("beside an infinity what is finite has no share in a logsumexp") {
  const float inf = INFINITY;
  const Tensor x = autograd::variable(Array::from<float>(Floats{0, inf, 100, -inf}, {4}));
  const Tensor y = ops::logsumexp(x, 0, false);
  CHECK(y.item() == inf);
  autograd::backward(y);
  const Floats shares = values(autograd::grad(x));
  CHECK((shares[0] == 0 && shares[2] == 0 && shares[3] == 0));  // PyTorch's, as is NaN of the ∞
}

TEST_CASE("the second derivatives of a power of 0 are finite") {
  const Tensor x = autograd::variable(Array::from<float>(Floats{0, 2}, {2}));
  const Tensor y = autograd::variable(Array::from<float>(Floats{3, 3}, {2}));
  const Tensor power = ops::pow(x, y), wrt[] = {x, y};
  std::vector<Tensor> first = autograd::gradients({&power, 1}, {}, wrt, true);
  CHECK(values(first[1])[0] == 0);
  const Tensor slopes = ops::add(first[0], first[1]);
  const std::vector<Tensor> second = autograd::gradients({&slopes, 1}, {}, wrt);
  for (const Tensor& gradient : second) CHECK(values(gradient)[0] == 0);
  // ∂²/∂y² 2³ + ∂²/∂x∂y 2³ = 8 ln² 2 + 4 (1 + 3 ln 2)
  const double ln2 = std::log(2.0);
  CHECK(values(second[1])[1] == Approx(8 * ln2 * ln2 + 4 * (1 + 3 * ln2)));

  const Tensor one = ops::pow(x, 0.0);
  first = autograd::gradients({&one, 1}, {}, {&x, 1}, true);
  CHECK(values(autograd::gradients(first, {}, {&x, 1})[0]) == Floats{0, 0});
}

TEST_CASE("comparisons that only choose stay inside the fused step") {
  const Tensor x = graph::input(DType::kF32, {100}, "x");
  const Tensor y[] = {ops::where(ops::lt(x, 0), x * 0.5, ops::exp(x))};
  CHECK(graph::compile(y).steps() == 1);
  const Tensor flags[] = {ops::lt(x * 2, 1)};
  CHECK(graph::compile(flags).steps() == 1);
}

TEST_CASE("whatever the element type, sums of many equal those of one thread") {
  ThreadPool pool(3);
  const Tensor x = ops::cumsum(ops::full({50, 300}, 1, DType::kI32), 1);
  const Array alone = ops::sum(x, ops::kAllAxes, false).eval();
  const graph::PoolScope scope(pool);
  const Tensor again = ops::cumsum(ops::full({50, 300}, 1, DType::kI32), 1);
  const Array together = ops::sum(again, ops::kAllAxes, false).eval();
  CHECK(together.as<int64_t>()[0] == alone.as<int64_t>()[0]);
  CHECK(alone.as<int64_t>()[0] == 50 * 300 * 301 / 2);
}

TEST_CASE("logic of numbers is that of their truth, one step for floats") {
  const std::vector<float> a = {0, -0.0f, 0, 1, -2, NAN, NAN, INFINITY, 1e-45f, 3},
                           b = {0, 5, NAN, 0, 1e-45f, 0, NAN, -0.0f, 1e-45f, -INFINITY};
  Floats both, either, one, none;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool x = a[i] != 0, y = b[i] != 0;
    both.push_back(x && y), either.push_back(x || y), one.push_back(x != y), none.push_back(!x);
  }
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBool}) {
    const Tensor x = graph::contiguous(floats(a), dtype), y = graph::contiguous(floats(b), dtype);
    INFO(name(dtype));
    for (const Tensor& z : {y, graph::contiguous(floats(b), DType::kBool)}) {
      CHECK(values(ops::logical_and(x, z)) == both);
      CHECK(values(ops::logical_or(x, z)) == either);
      CHECK(values(ops::logical_xor(x, z)) == one);
      CHECK(ops::logical_xor(x, z).dtype() == DType::kBool);
    }
    CHECK(values(ops::logical_not(x)) == none);
  }
  const Tensor x = graph::input(DType::kF32, {4, 5}, "x"),
               y = graph::input(DType::kF32, {4, 5}, "y");
  for (const Tensor& z : {ops::logical_and(x, y), ops::logical_or(x, y), ops::logical_xor(x, y)}) {
    CHECK(z.shape() == Shape{4, 5});
    CHECK(graph::compile(std::span(&z, 1)).steps() == 1);
  }
}

TEST_CASE("allclose knows infinities and NaN") {
  CHECK(ops::allclose(floats({1, INFINITY}), floats({1 + 1e-7f, INFINITY})));
  CHECK_FALSE(ops::allclose(floats({1}), floats({1.001f})));
  CHECK_FALSE(ops::allclose(floats({NAN}), floats({NAN})));
  CHECK(ops::allclose(floats({NAN}), floats({NAN}), 1e-5, 1e-8, true));
  CHECK_FALSE(ops::allclose(floats({INFINITY}), floats({-INFINITY})));
}

TEST_CASE("allclose compares truth values and empty tensors") {
  const Tensor flags = ops::gt(floats({1, -1}), 0);
  CHECK(ops::allclose(flags, flags));
  CHECK_FALSE(ops::allclose(flags, ops::logical_not(flags)));
  CHECK(ops::allclose(ops::zeros({0}), ops::zeros({0})));
}

TEST_CASE("a scalar is an index too") {
  const Tensor table = graph::constant(Floats{1, 2, 3, 4}, {2, 2});
  auto id = [](int32_t value) { return graph::reshape(vector_of<int32_t>({value}), {}); };
  CHECK(values(ops::embedding(table, id(1))) == Floats{3, 4});
  CHECK(values(ops::embedding_grad(floats({5, 6}), id(1), 2)) == Floats{0, 0, 5, 6});
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::embedding(table, id(2)).eval(); }),
                 "index 2"));
}

TEST_CASE("scatter_add of truth values is or") {
  const Tensor x = ops::gt(floats({0, 1, 0}), 0), src = ops::gt(floats({1, 1, 0, 0}), 0);
  const Tensor index = vector_of<int64_t>({0, 0, 1, 2});
  CHECK(values(ops::scatter_add(x, 0, index, src)) == Floats{1, 1, 0});
}

TEST_CASE("rolling keeps the type of what is cut from zeros") {
  const int64_t big = (int64_t{1} << 53) + 1;
  const Tensor x = vector_of<int64_t>({big, 2});
  const Array rolled = ops::roll(graph::pad(x, 0, 2, 0), 2, 0).eval();
  REQUIRE(rolled.dtype() == DType::kI64);
  CHECK(rolled.as<int64_t>()[0] == big);
  CHECK(rolled.as<int64_t>()[3] == 0);
}

TEST_CASE("more axes than a tensor can have are refused") {
  const Tensor x = graph::constant(Array::zeros(DType::kF32, {1, 1, 1, 1, 1, 1, 1, 1}));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::unsqueeze(x, 0); }), "at most 8 axes"));
  const Tensor one = floats({1});
  const int64_t many[] = {int64_t{1} << 40};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::repeat_interleave(x, INT64_MAX, 0); }),
                 "at most"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::tile(ops::tile(one, many), many); }),
                 "at most"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [] { ops::linspace(0, 1, int64_t{1} << 62); }),
                 "at most"));
}

TEST_CASE("tensors of eight axes are repeated along any of them") {
  const Tensor x = graph::reshape(floats({1, 2, 3, 4}), {1, 2, 1, 1, 1, 1, 1, 2});
  CHECK(values(ops::repeat_interleave(x, 2, 1)) == Floats{1, 2, 1, 2, 3, 4, 3, 4});
  CHECK(values(ops::repeat_interleave(x, 2, -1)) == Floats{1, 1, 2, 2, 3, 3, 4, 4});
  CHECK(to_string(ops::repeat_interleave(x, 0, 3).shape()) == "[1, 2, 1, 0, 1, 1, 1, 2]");
}

TEST_CASE("normalisation of rows without weights is that with ones and zeros") {
  const Tensor x = graph::constant(Floats{1, 2, 4, -3, 0, 5}, {2, 3});
  const Tensor ones = ops::ones({3}), zeros = ops::zeros({3}), bias = floats({1, 2, 3});
  CHECK(values(ops::rms_norm(x, {}, 1e-5)) == values(ops::rms_norm(x, ones, 1e-5)));
  CHECK(values(ops::layer_norm(x, {}, {}, 1e-5)) == values(ops::layer_norm(x, ones, zeros, 1e-5)));
  CHECK(values(ops::layer_norm(x, {}, bias, 1e-5)) == values(ops::layer_norm(x, ones, bias, 1e-5)));
  CHECK(contains(refusal(ErrorKind::kMalformed, [] { ops::rms_norm(ops::ones({}), {}, 1e-5); }),
                 "rms_norm"));
  const Tensor v = autograd::variable(Array::from<float>(Floats{1, 2, 4}, {1, 3}));
  autograd::backward(ops::sum(ops::layer_norm(v, {}, {}, 1e-5), ops::kAllAxes, false));
  for (float slope : values(autograd::grad(v))) CHECK(std::abs(slope) < 1e-6f);
}

TEST_CASE("normalisation of narrow rows is that of float32 ones, rounded once") {
  const Tensor x = graph::constant(std::vector<float>{1, 2, 4, -3, 5, 0.5f}, {2, 3});
  const Tensor w = graph::constant(std::vector<float>{1, 0.5f, 2}, {3});
  const Tensor b = graph::constant(std::vector<float>{0, 1, -1}, {3});
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const Tensor narrow_x = graph::contiguous(x, dtype), narrow_w = graph::contiguous(w, dtype);
    const Tensor y = ops::layer_norm(narrow_x, narrow_w, graph::contiguous(b, dtype), 1e-5);
    CHECK(y.dtype() == dtype);
    const auto rounded = [&](const Tensor& wide) {
      return values(graph::contiguous(graph::contiguous(wide, dtype), DType::kF32));
    };
    CHECK(values(graph::contiguous(y, DType::kF32)) == rounded(ops::layer_norm(x, w, b, 1e-5)));
    const Tensor without = ops::rms_norm(narrow_x, {}, 1e-5);
    CHECK(without.dtype() == dtype);
    CHECK(values(graph::contiguous(without, DType::kF32)) == rounded(ops::rms_norm(x, {}, 1e-5)));
    const Tensor v = autograd::variable(narrow_x.eval());
    const Tensor loss = ops::sum(ops::layer_norm(v, narrow_w, {}, 1e-5), ops::kAllAxes, false);
    autograd::backward(loss);
    CHECK(autograd::grad(v).shape() == v.shape());
  }
}

TEST_CASE("float64 is computed as such whatever else takes part") {
  const Tensor base = vector_of<int32_t>({3});
  const Tensor y = autograd::variable(Array::from<double>(std::vector<double>{0.7}, {1}));
  autograd::backward(ops::sum(ops::pow(base, y), 0, false));
  CHECK(autograd::grad(y).item() == Approx(std::pow(3, 0.7) * std::log(3.0)).epsilon(1e-14));
  const Tensor x = graph::reshape(vector_of<double>({2}), {1, 1});
  const Tensor mean = vector_of<double>({0}), var = vector_of<double>({1e-9});
  const Tensor normal = ops::batch_norm(x, mean, var, {}, {}, 0.1);
  CHECK(normal.item() == Approx(2 / std::sqrt(0.1 + 1e-9)).epsilon(1e-14));
}

TEST_CASE("linear takes plain floats of any type") {
  const Tensor x = floats({1, 2, 3}),
               w = graph::reshape(vector_of<double>({0.1, 0.2, 0.3}), {1, 3});
  const Array y = ops::linear(x, w).eval();
  REQUIRE(y.dtype() == DType::kF64);
  CHECK(y.as<double>()[0] == Approx(1.4).epsilon(1e-15));
  const Tensor half = graph::contiguous(x, DType::kF16);
  CHECK(ops::linear(half, graph::contiguous(w, DType::kF16)).dtype() == DType::kF16);
  CHECK(ops::linear(half, graph::contiguous(w, DType::kF32)).dtype() == DType::kF32);
  auto message = [](auto&& body) { return refusal(ErrorKind::kMalformed, body); };
  CHECK(contains(message([&] { ops::linear(x, w, w); }), "the bias must be [1]"));
  const Tensor blocks = graph::constant(Array::zeros(DType::kQ8_0, {1, 32}));
  const Tensor row = ops::zeros({1, 32});
  CHECK(contains(message([&] { ops::linear(row, blocks, vector_of<double>({1})); }), "the bias"));
  CHECK(contains(message([&] { ops::linear(x, vector_of<double>({1})); }), "the weight"));
  CHECK(contains(message([&] { ops::linear(x, graph::contiguous(w, DType::kI8)); }), "the weight"));
}

TEST_CASE("a number takes on the type that it meets, or is refused") {
  const Tensor tenth = graph::contiguous(floats({0.1f}), DType::kF16);
  CHECK(values(ops::eq(tenth, 0.1)) == Floats{1});
  CHECK(values(ops::gt(tenth, 0.1)) == Floats{0});
  const Tensor flags = ops::gt(floats({0, 1}), 0), bytes = vector_of<uint8_t>({3, 7});
  CHECK(values(ops::masked_fill(flags, ops::logical_not(flags), 0.5)) == Floats{1, 1});
  CHECK(values(ops::masked_fill(bytes, flags, 2.7)) == Floats{3, 2});
  CHECK(values(ops::amin(bytes, ops::kAllAxes, false)) == Floats{3});
  const Tensor big = vector_of<int64_t>({INT64_MAX, 0});
  CHECK(values(ops::eq(big, INT64_MAX)) == Floats{1, 0});
  auto refused = [](auto&& body) {
    return contains(refusal(ErrorKind::kMalformed, body), "is not in the range of");
  };
  CHECK(refused([&] { ops::floor_divide(bytes, -2); }));
  CHECK(refused([&] { ops::full_like(bytes, 300); }));
  CHECK(refused([&] { ops::full({}, -129, DType::kI8); }));
  CHECK(contains(
      refusal(ErrorKind::kMalformed, [&] { ops::full({}, (int64_t{1} << 53) + 1, DType::kI32); }),
      "the number 9007199254740993 is not"));
  for (const double value : {double{NAN}, 1e300, 0x1p63}) {
    CHECK(refused([&] { ops::masked_fill(big, flags, value); }));
  }
}

TEST_CASE("numbers that meet narrow floats are rounded to them, but for factors and divisors") {
  const Tensor x = graph::contiguous(floats({2048, 1}), DType::kF16);
  CHECK(values(ops::sub(x, 2049)) == Floats{0, -2047});  // 2049 rounds to 2048
  CHECK(values(ops::sub(2049, x)) == Floats{0, 2047});
  CHECK(values(ops::mod(x, 2049)) == Floats{0, 1});
  CHECK(values(ops::floor_divide(x, 2049)) == Floats{0, 0});
  CHECK(values(ops::mul(graph::contiguous(floats({3}), DType::kF16), 2049)) == Floats{6148});
}

TEST_CASE("steps of windows that no memory holds are refused") {
  const Tensor x = ops::ones({1, 2, 9}), w = ops::ones({2, 1, 3});
  const int64_t huge = int64_t{1} << 62;
  const auto refused = [](auto&& body, const char* most) {
    return contains(refusal(ErrorKind::kMalformed, body), most);
  };
  for (const ops::Conv1dOptions& options : std::vector<ops::Conv1dOptions>{
           {.stride = huge}, {.padding = huge}, {.dilation = huge}, {.padding = -1}}) {
    CHECK(refused([&] { ops::conv1d(x, w, {}, options); }, "none above 2147483647"));
    CHECK(refused([&] { ops::conv_transpose1d(x, w, {}, options); }, "none above 2147483647"));
  }
  for (const ops::Pool1dOptions& options : std::vector<ops::Pool1dOptions>{
           {.kernel = huge}, {.kernel = 2, .dilation = huge}, {.kernel = 2, .padding = huge}}) {
    CHECK(refused([&] { ops::max_pool1d(x, options); }, "must be from 1 to 2147483647"));
  }
}

TEST_CASE("batch_norm refuses statistics and weights of other channels") {
  const Tensor x = ops::ones({3, 4, 2}), fits = ops::ones({4}), one = ops::ones({1});
  const Tensor inputs[] = {fits, fits, fits, fits};
  for (size_t i = 0; i < 4; ++i) {
    std::vector<Tensor> w(inputs, inputs + 4);
    w[i] = one;
    const std::string message =
        refusal(ErrorKind::kMalformed, [&] { ops::batch_norm(x, w[0], w[1], w[2], w[3], 1e-5); });
    CHECK(contains(message, "must be [4], not [1]"));
  }
}

TEST_CASE("rope refuses tables and rows of other types") {
  const Tensor x = ops::ones({1, 2, 1, 8}), table = ops::ones({2, 2, 4});
  const auto refused = [](const Tensor& rows, const Tensor& angles, bool interleaved) {
    const std::string message =
        refusal(ErrorKind::kMalformed, [&] { ops::rope(rows, angles, interleaved); });
    return contains(message, "needs float32");
  };
  CHECK(refused(x, graph::contiguous(table, DType::kF64), false));
  CHECK(refused(x, graph::contiguous(table, DType::kI8), true));
  CHECK(refused(graph::contiguous(x, DType::kBF16), table, true));
}

TEST_CASE("scalars of wider integers wrap before they are computed with") {
  const Tensor x = vector_of<uint8_t>({1, 200}), wide = ops::full({}, -3, DType::kI64);  // 253
  CHECK(values(ops::remainder(x, wide)) == Floats{1, 200});
  CHECK(values(ops::mod(wide, x)) == Floats{0, 53});
  CHECK(values(ops::floor_divide(wide, x)) == Floats{253, 1});
  CHECK(values(ops::maximum(x, wide)) == Floats{253, 253});
  CHECK(values(ops::lt(x, wide)) == Floats{1, 1});
  CHECK(values(ops::ge(wide, x)) == Floats{1, 1});
}

TEST_CASE("gradients at the ends of hard_swish and at a division by zero") {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const auto variable = [&](const std::vector<float>& numbers) {
      return autograd::variable(graph::contiguous(floats(numbers), dtype).eval());
    };
    const Tensor x = variable({-3, 3}), swish = ops::hard_swish(x);
    const Tensor slope = autograd::gradients({&swish, 1}, {}, {&x, 1}, true)[0];
    CHECK(values(slope) == Floats{0, 1});
    CHECK(values(autograd::gradients({&slope, 1}, {}, {&x, 1})[0]) == Floats{0, 0});
    const Tensor divisor = variable({0, 2}), rest = ops::mod(floats({5, 5}), divisor);
    const Tensor quotient = autograd::gradients({&rest, 1}, {}, {&divisor, 1}, true)[0];
    CHECK(values(quotient) == Floats{-INFINITY, -2});
    CHECK(values(autograd::gradients({&quotient, 1}, {}, {&divisor, 1})[0]) == Floats{0, 0});
  }
}

TEST_CASE("what has no elements") {
  const Tensor none = ops::zeros({2, 0});
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::max(none, 1); }), "no elements"));
  CHECK(values(ops::any(none, 1)) == Floats{0, 0});
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const Tensor rows = ops::zeros({2, 0}, dtype);
    CHECK(ops::softmax(rows).eval().shape() == Shape{2, 0});
    CHECK(ops::log_softmax(rows).eval().shape() == Shape{2, 0});
  }
  CHECK(ops::adaptive_avg_pool2d(ops::zeros({0, 3, 4, 5}), {1, 2}).eval().shape() ==
        Shape{0, 3, 1, 2});
  CHECK(ops::chunk(none, 3, 1).size() == 3);
  CHECK(ops::chunk(ops::zeros({5}), INT64_MAX, 0).size() == 5);
  CHECK(ops::topk(ops::full({}, 5), 0).values.item() == 5);

  const Tensor x = autograd::variable(Array::zeros(DType::kF32, {3, 2}));
  const Tensor w = autograd::variable(Array::zeros(DType::kF32, {0, 2}));
  autograd::backward(ops::sum(ops::linear(x, w), ops::kAllAxes, false));
  CHECK(values(autograd::grad(x)) == Floats(6, 0.0f));
  CHECK(autograd::grad(w).shape() == Shape{0, 2});
}

TEST_CASE("group_norm is what refuses types that it does not take") {
  const Tensor x = ops::zeros({1, 2, 3}, DType::kI32);
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::group_norm(x, 2, {}, {}, 1e-5); }),
                 "group_norm"));
}
