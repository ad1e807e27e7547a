// Element-wise steps of operands that are repeated along some axes, or have gaps between rows: the
// bits of the same step of copies without either.
#include <cstring>
#include <vector>

#include "lib/base/pool.h"
#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/typed.h"
#include "lib/ops/ops.h"

using namespace lumen;
using graph::Tensor;

namespace {

Tensor random_tensor(Philox& random, DType dtype, const Shape& shape) {
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (double& x : values) x = random.normal();
  Array array = Array::zeros(dtype, shape);
  kernels::store_typed(dtype, values.data(), shape.elements(), array.mutable_data());
  return graph::constant(array);
}

// A chain; a function between two of them; of the last operand twice.
std::vector<Tensor> results_of(const std::vector<Tensor>& x) {
  const Tensor chain = ops::sub(ops::mul(ops::add(x[0], x[1]), x[2]), x[3]);
  const Tensor mixed = ops::mul(ops::exp(ops::add(x[1], x[4])), x[2]);
  return {chain,
          mixed,
          ops::add(x[0], x[1]),
          ops::mul(x[2], x[1]),
          ops::maximum(x[4], x[3]),
          ops::mul(x[4], x[4])};
}

}  // namespace

TEST_CASE("rows of any length are the same whatever is repeated along them") {
  Philox random(3);
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const graph::PoolScope scope(pool);
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      for (const int64_t columns : {1, 2, 3, 7, 10, 33, 64, 100, 128, 255, 257, 511, 513}) {
        for (const int64_t rows : {1, 2, 5, 37, 300}) {
          if (rows * columns > 40000) continue;
          const Shape shape = {2, rows, columns};
          const std::vector<Tensor> x = {
              random_tensor(random, dtype, shape), random_tensor(random, dtype, {columns}),
              random_tensor(random, dtype, {rows, 1}), random_tensor(random, dtype, {2, 1, 1}),
              graph::slice(random_tensor(random, dtype, {2, rows, columns + 3}), 2, 1,
                           columns + 1)};
          std::vector<Tensor> copies;
          for (const Tensor& part : x) {
            const Tensor whole = graph::contiguous(graph::expand(part, shape));
            copies.push_back(graph::constant(whole.eval()));
          }
          const std::vector<Tensor> got = results_of(x), want = results_of(copies);
          for (size_t i = 0; i < got.size(); ++i) {
            const Array wanted = graph::expand(want[i], shape).eval();
            const Array found = graph::contiguous(graph::expand(got[i], shape)).eval();
            INFO(name(dtype) << " " << rows << " x " << columns << ", result " << i);
            REQUIRE(found.bytes() == wanted.bytes());
            REQUIRE(std::memcmp(found.data(), wanted.data(), wanted.bytes()) == 0);
          }
        }
      }
    }
  }
}
