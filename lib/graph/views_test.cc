#include "lib/graph/views.h"

#include "lib/base/testing.h"

using namespace lumen;
using graph::Tensor;
using testing::contains;
using testing::refusal;

TEST_CASE("the zeros of a padded value are cut out in its type and from its range") {
  const Tensor x = graph::constant(Array::from<int64_t>(std::vector<int64_t>{1, 2}, {2}));
  const Tensor padded = graph::pad(x, 0, 2, 2);
  for (const int64_t begin : {0, 4}) {
    const Array zeros = graph::slice(padded, 0, begin, begin + 2).eval();
    REQUIRE(zeros.dtype() == DType::kI64);
    CHECK(zeros.as<int64_t>()[1] == 0);
  }
  CHECK(graph::slice(padded, 0, 2, 4).node() == x.node());
  auto refused = [&](int64_t begin, int64_t end) {
    const auto cut = [&] { graph::slice(padded, 0, begin, end); };
    return contains(refusal(ErrorKind::kMalformed, cut), "no elements");
  };
  CHECK(refused(4, 100));
  CHECK(refused(-1, 1));
  CHECK(refused(1, 0));
}

TEST_CASE("shapes that nothing can have are refused when they are asked for") {
  const Tensor one = graph::constant(std::vector<float>{1}, {1});
  const int64_t most = Shape::kMaxElements;
  auto refused = [&](auto&& body) {
    return contains(refusal(ErrorKind::kMalformed, body), "nothing has the shape");
  };
  for (const Shape& shape : {Shape{-2, -3}, Shape{most, 2}, Shape{1LL << 32, 1LL << 32}}) {
    INFO(to_string(shape));
    CHECK(refused([&] { graph::expand(one, shape); }));
    CHECK(refused([&] { graph::reshape(one, shape); }));
    CHECK(refused([&] { graph::input(DType::kF32, shape, "x"); }));
    CHECK(refused([&] { Array::zeros(DType::kF32, shape); }));
  }
  const Tensor none = graph::constant(Array::zeros(DType::kF32, {0}));
  CHECK(refused([&] { graph::reshape(none, {-1, 1LL << 32, 1LL << 32}); }));
  CHECK(graph::expand(one, {most}).shape() == Shape{most});
  CHECK(refused([&] { graph::pad(one, 0, most, 0); }));
  for (const int64_t zeros : {int64_t{-1}, INT64_MAX}) {
    CHECK(contains(refusal(ErrorKind::kMalformed, [&] { graph::pad(one, 0, zeros, zeros); }),
                   "no padding"));
  }
}

TEST_CASE("the number of axes is limited by an error") {
  const Tensor x = graph::constant(std::vector<float>{1}, {1, 1, 1, 1, 1, 1, 1, 1});
  auto message = [](auto&& body) { return refusal(ErrorKind::kMalformed, body); };
  CHECK(message([] { Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }) == "a tensor has at most 8 axes");
  CHECK(message([&] {
          Shape shape = x.shape();
          shape.push_back(1);
        }) == "a tensor has at most 8 axes");
}
