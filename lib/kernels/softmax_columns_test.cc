#include "lib/kernels/softmax_columns.h"

#include <cmath>
#include <limits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/norm_backward.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

using Floats = std::vector<float>;

// x [outer, n, inner] with the last two axes changed.
Floats turned(const Floats& x, const Columns& shape) {
  Floats y(x.size());
  for (int64_t o = 0; o < shape.outer; ++o) {
    for (int64_t i = 0; i < shape.n; ++i) {
      for (int64_t j = 0; j < shape.inner; ++j) {
        y[(o * shape.inner + j) * shape.n + i] = x[(o * shape.n + i) * shape.inner + j];
      }
    }
  }
  return y;
}

void require_close(const Floats& got, const Floats& want) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      REQUIRE(std::isnan(got[i]));
    } else if (got[i] != want[i]) {  // infinities are equal
      REQUIRE(std::fabs(got[i] - want[i]) <= 1e-5f * (1 + std::fabs(want[i])));
    }
  }
}

struct Results {
  Floats softmax, log_softmax, backward, log_backward;
};

Results along_columns(const Columns& shape, const Floats& x, const Floats& dy, int threads) {
  ThreadPool pool(threads);
  std::vector<std::byte> memory(softmax_columns_workspace_bytes(shape.n, threads) + 64);
  auto* const workspace =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  Results y = {x, x, dy, dy};  // in place
  softmax_columns(pool, shape, y.softmax.data(), y.softmax.data(), workspace);
  log_softmax_columns(pool, shape, y.log_softmax.data(), y.log_softmax.data(), workspace);
  softmax_columns_backward(pool, shape, y.softmax.data(), dy.data(), DType::kF32, y.backward.data(),
                           workspace);
  log_softmax_columns_backward(pool, shape, y.log_softmax.data(), dy.data(), DType::kF32,
                               y.log_backward.data(), workspace);
  return y;
}

Results along_rows(const Columns& shape, const Floats& x, const Floats& dy) {
  ThreadPool pool(1);
  const Floats rows = turned(x, shape), drows = turned(dy, shape);
  Results y = {rows, rows, drows, drows};
  auto view = [&](const Floats& z) {
    return Rows{z.data(), shape.outer * shape.inner, shape.n, shape.n};
  };
  softmax(pool, view(rows), y.softmax.data(), shape.n);
  log_softmax(pool, view(rows), y.log_softmax.data(), shape.n);
  softmax_backward(pool, view(y.softmax), view(drows), y.backward.data());
  log_softmax_backward(pool, view(y.log_softmax), view(drows), y.log_backward.data());
  const Columns back = {shape.outer, shape.inner, shape.n};
  return {turned(y.softmax, back), turned(y.log_softmax, back), turned(y.backward, back),
          turned(y.log_backward, back)};
}

}  // namespace

TEST_CASE("softmax along columns is that along rows, whatever the threads") {
  on_every_target([] {
    Philox random(4);
    for (const Columns shape : {Columns{1, 1, 1}, Columns{3, 5, 17}, Columns{2, 40, 300},
                                Columns{1, 7000, 19}, Columns{0, 3, 2}, Columns{2, 0, 5}}) {
      const int64_t count = shape.outer * shape.n * shape.inner;
      Floats x = random_floats(random, count, 4), dy = random_floats(random, count, 1);
      if (shape.n == 5) {
        const float infinity = std::numeric_limits<float>::infinity();
        x[17] = NAN;
        for (int64_t i = 0; i < 5; ++i) x[i * 17 + 3] = -infinity;  // a column of nothing else
        x[2 * 17 + 5] = -infinity;
      }
      const Results want = along_rows(shape, x, dy);
      const Results one = along_columns(shape, x, dy, 1), three = along_columns(shape, x, dy, 3);
      require_close(one.softmax, want.softmax);
      require_close(one.log_softmax, want.log_softmax);
      require_close(one.backward, want.backward);
      if (shape.n != 5) {
        require_close(one.log_backward, want.log_backward);
        CHECK(one.softmax == three.softmax);
        CHECK(one.log_softmax == three.log_softmax);
        CHECK(one.backward == three.backward);
        CHECK(one.log_backward == three.log_backward);
      }
    }
  });
}
