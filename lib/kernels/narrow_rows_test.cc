// Normalisations, softmax and cross-entropy of float16 and bfloat16: what they give is, to the bit,
// what they would of the same numbers in float32, rounded once where it is narrow.
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/cross_entropy.h"
#include "lib/kernels/group_norm.h"
#include "lib/kernels/norm.h"
#include "lib/kernels/norm_backward.h"
#include "lib/kernels/numbers.h"
#include "lib/kernels/softmax_columns.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

using Floats = std::vector<float>;

constexpr float kEps = 1e-5f;
constexpr int64_t kGap = 3;  // numbers behind each row, which must stay as they are
constexpr float kGuard = -77;

// Number i of x set to v, rounded.
void set_number(DType dtype, void* x, int64_t i, float v) {
  if (dtype == DType::kF32) {
    static_cast<float*>(x)[i] = v;
    return;
  }
  const uint16_t bits = dtype == DType::kF16 ? to_f16(v).bits : to_bf16(v).bits;
  std::memcpy(number_address(dtype, x, i), &bits, sizeof(bits));
}

// Numbers of a type. The first stands beside them: narrow ones are not aligned.
class Numbers {
 public:
  Numbers(DType dtype, const Floats& values) : dtype_(dtype), size_(values.size()) {
    bytes_.resize(static_cast<size_t>(row_bytes(dtype, static_cast<int64_t>(size_) + 1)));
    for (size_t i = 0; i < size_; ++i)
      set_number(dtype, data(), static_cast<int64_t>(i), values[i]);
  }

  std::byte* data() { return number_address(dtype_, static_cast<void*>(bytes_.data()), 1); }
  float* as_floats() { return reinterpret_cast<float*>(data()); }
  const std::byte* data() const {
    return number_address(dtype_, static_cast<const void*>(bytes_.data()), 1);
  }

  Floats floats() const {
    Floats values(size_);
    for (size_t i = 0; i < size_; ++i) {
      values[i] = number_at(dtype_, data(), static_cast<int64_t>(i));
    }
    return values;
  }
  Numbers wide() const { return {DType::kF32, floats()}; }
  DType dtype() const { return dtype_; }

  // Equal bits, but for those of NaNs.
  bool same(const Numbers& other) const {
    const Floats a = floats(), b = other.floats();
    for (size_t i = 0; i < size_; ++i) {
      const bool are_nan = std::isnan(a[i]) && std::isnan(b[i]);
      if (!are_nan && (a[i] != b[i] || std::signbit(a[i]) != std::signbit(b[i]))) return false;
    }
    return a.size() == b.size();
  }

 private:
  DType dtype_;
  size_t size_;
  std::vector<std::byte> bytes_;
};

struct Workspace {
  explicit Workspace(size_t bytes) : floats(bytes / sizeof(float) + 32) {}
  std::byte* data() {
    return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(floats.data()) + 63) / 64 *
                                        64);
  }
  Floats floats;
};

using Results = std::vector<Numbers>;

// Whether compute(pool, operands), a function of operands of one type, gives of the narrow ones
// what it gives of the same numbers in float32, rounded, with one thread and with three.
void check(const Results& operands,
           const std::function<Results(ThreadPool&, const Results& operands)>& compute) {
  Results wide;
  for (const Numbers& x : operands) wide.push_back(x.wide());
  ThreadPool one(1), three(3);
  const Results want = compute(one, wide), got = compute(one, operands);
  const Results again = compute(three, operands);
  for (size_t i = 0; i < want.size(); ++i) {
    INFO("result " << i);
    REQUIRE(got[i].same({got[i].dtype(), want[i].floats()}));
    REQUIRE(got[i].same(again[i]));
  }
}

template <class Body>
void for_each_dim(const Body& body) {
  on_every_target([&] {
    Philox random(5);
    for (DType dtype : {DType::kF16, DType::kBF16}) {
      for (int64_t dim = 1; dim <= 67; ++dim) body(dtype, dim, random);
      for (int64_t dim : {288, 5001}) body(dtype, dim, random);
    }
  });
}

// Rows with gaps; some hold what is no number or not finite.
constexpr int64_t kRows = 5;
Numbers special_rows(DType dtype, int64_t dim, Philox& random) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const int64_t stride = dim + kGap;
  Floats x = random_floats(random, kRows * stride, 2);
  x[static_cast<size_t>(2 * stride + dim / 2)] = std::numeric_limits<float>::quiet_NaN();
  x[static_cast<size_t>(3 * stride + dim - 1)] = kInf;
  for (int64_t i = 0; i < dim; ++i) x[static_cast<size_t>(4 * stride + i)] = -kInf;
  return {dtype, x};
}
Rows rows_of(const Numbers& x, int64_t dim) {
  return {x.data(), kRows, dim, dim + kGap, x.dtype()};
}
Numbers room(DType dtype, int64_t count) {
  return {dtype, Floats(static_cast<size_t>(count), kGuard)};
}

void require_guards(const Numbers& y, int64_t dim) {
  const Floats values = y.floats();
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = dim; i < dim + kGap; ++i) {
      REQUIRE(values[static_cast<size_t>(row * (dim + kGap) + i)] == kGuard);
    }
  }
}

}  // namespace

TEST_CASE("norms and softmax of narrow rows are computed as floats and rounded once") {
  for_each_dim([](DType type, int64_t dim, Philox& random) {
    INFO(name(type) << ", dim " << dim);
    const Results operands = {special_rows(type, dim, random),
                              {type, random_floats(random, dim)},
                              {type, random_floats(random, dim)}};
    check(operands, [&](ThreadPool& pool, const Results& in) {
      const DType dtype = in[0].dtype();
      const Rows x = rows_of(in[0], dim);
      const int64_t stride = dim + kGap;
      Results y(6, room(dtype, kRows * stride));
      Workspace workspace(softmax_workspace_bytes(dtype, dim, pool.threads()));
      rms_norm(pool, x, in[1].data(), kEps, y[0].data(), stride);
      rms_norm(pool, x, nullptr, kEps, y[1].data(), stride);
      layer_norm(pool, x, in[1].data(), in[2].data(), kEps, y[2].data(), stride);
      softmax(pool, x, y[3].data(), stride, workspace.data());
      log_softmax(pool, x, y[4].data(), stride);
      for (const Numbers& result : y) require_guards(result, dim);
      y[5] = in[0];  // in place
      softmax(pool, rows_of(y[5], dim), y[5].data(), stride, workspace.data());
      return y;
    });
  });
}

TEST_CASE("gradients of narrow rows are those of floats") {
  for_each_dim([](DType type, int64_t dim, Philox& random) {
    INFO(name(type) << ", dim " << dim);
    for (DType gradient : {type, DType::kF32}) {
      const Results operands = {special_rows(type, dim, random),
                                {gradient, random_floats(random, kRows * (dim + kGap))},
                                {type, random_floats(random, dim)}};
      check(operands, [&](ThreadPool& pool, const Results& in) {
        const Rows x = rows_of(in[0], dim), dy = rows_of(in[1], dim);
        Results dx(4, room(DType::kF32, kRows * dim)), sums(3, room(DType::kF32, dim));
        Workspace workspace(norm_backward_workspace_bytes(kRows, dim));
        softmax_backward(pool, x, dy, dx[0].as_floats());
        log_softmax_backward(pool, x, dy, dx[1].as_floats());
        rms_norm_backward(pool, x, in[2].data(), dy, kEps, dx[2].as_floats(), sums[0].as_floats(),
                          workspace.data());
        layer_norm_backward(pool, x, in[2].data(), dy, kEps, dx[3].as_floats(), sums[1].as_floats(),
                            sums[2].as_floats(), workspace.data());
        dx.insert(dx.end(), sums.begin(), sums.end());
        return dx;
      });
    }
  });
}

TEST_CASE("softmax along narrow columns is computed in floats and rounded once") {
  on_every_target([] {
    Philox random(6);
    for (DType type : {DType::kF16, DType::kBF16}) {
      for (const Columns like : {Columns{1, 1, 1}, Columns{3, 5, 17}, Columns{2, 40, 300},
                                 Columns{1, 7000, 19}, Columns{1, 66000, 2}}) {
        const int64_t count = like.outer * like.n * like.inner;
        Floats x = random_floats(random, count, 3);
        x[static_cast<size_t>(count / 2)] = std::numeric_limits<float>::quiet_NaN();
        const DType gradient = like.n % 2 == 0 ? type : DType::kF32;
        check({{type, x}, {gradient, random_floats(random, count)}},
              [&](ThreadPool& pool, const Results& in) {
                Columns shape = like;
                shape.dtype = in[0].dtype();
                Workspace workspace(softmax_columns_workspace_bytes(shape.n, pool.threads()));
                Results y(2, room(shape.dtype, count)), dx(2, room(DType::kF32, count));
                softmax_columns(pool, shape, in[0].data(), y[0].data(), workspace.data());
                log_softmax_columns(pool, shape, in[0].data(), y[1].data(), workspace.data());
                softmax_columns_backward(pool, shape, in[0].data(), in[1].data(), in[1].dtype(),
                                         dx[0].as_floats(), workspace.data());
                log_softmax_columns_backward(pool, shape, in[0].data(), in[1].data(), in[1].dtype(),
                                             dx[1].as_floats(), workspace.data());
                y.insert(y.end(), dx.begin(), dx.end());
                return y;
              });
      }
    }
  });
}

TEST_CASE("group norm of narrow numbers is computed as floats and rounded once") {
  on_every_target([] {
    Philox random(7);
    for (DType type : {DType::kF16, DType::kBF16}) {
      for (int64_t pixels = 1; pixels <= 5001; pixels = pixels == 40 ? 5001 : pixels + 1) {
        const int64_t batch = 2, groups = 3, channels = 2;
        const int64_t count = batch * groups * channels * pixels;
        const DType gradient = pixels % 2 == 0 ? type : DType::kF32;
        check({{type, random_floats(random, count, 2)},
               {gradient, random_floats(random, count)},
               {type, random_floats(random, groups * channels)},
               {type, random_floats(random, groups * channels)}},
              [&](ThreadPool& pool, const Results& in) {
                const DType dtype = in[0].dtype();
                const GroupShape shape = {batch, groups, channels, pixels, dtype};
                Workspace workspace(group_norm_workspace_bytes(shape));
                Results y(2, room(dtype, count)), dx(3, room(DType::kF32, count));
                group_norm(pool, shape, in[0].data(), in[2].data(), in[3].data(), kEps,
                           y[0].data());
                group_norm(pool, shape, in[0].data(), nullptr, nullptr, kEps, y[1].data());
                group_norm_backward(pool, shape, in[0].data(), in[2].data(), in[1].data(),
                                    in[1].dtype(), kEps, dx[0].as_floats(), dx[1].as_floats(),
                                    dx[2].as_floats(), workspace.data());
                y.insert(y.end(), dx.begin(), dx.end());
                return y;
              });
      }
    }
  });
}

TEST_CASE("losses of narrow logits and their gradients are those of floats") {
  for_each_dim([](DType type, int64_t dim, Philox& random) {
    INFO(name(type) << ", classes " << dim);
    const Numbers logits = special_rows(type, dim, random);
    const Floats drow = random_floats(random, kRows), weights = random_floats(random, dim);
    const std::vector<int32_t> targets = {static_cast<int32_t>(dim - 1), -100, 0,
                                          static_cast<int32_t>(dim / 2), 0};
    for (float smoothing : {0.0f, 0.25f}) {
      check({logits}, [&](ThreadPool& pool, const Results& in) {
        const CrossEntropy args{.logits = rows_of(in[0], dim),
                                .targets = targets.data(),
                                .class_weight = smoothing > 0 ? weights.data() : nullptr,
                                .smoothing = smoothing};
        Results y(6, room(DType::kF32, kRows)), dx(2, room(DType::kF32, kRows * dim));
        auto floats = [&](size_t i) { return y[i].as_floats(); };
        cross_entropy(pool, args, {floats(0), floats(1), floats(2), floats(3)});
        cross_entropy_backward(pool, args, floats(2), floats(3), drow.data(), dx[0].as_floats());
        nll(pool, args, floats(4), floats(5));
        nll_backward(pool, args, drow.data(), dx[1].as_floats());
        y.insert(y.end(), dx.begin(), dx.end());
        return y;
      });
    }
  });
}
