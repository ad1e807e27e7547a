#include "lib/kernels/chain.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

struct Op {
  TypedOp op;
  int arguments;
  double (*of)(double a, double b, double c);  // but for its rounding to the type of the chain
};
constexpr Op kOps[] = {
    {TypedOp::kAdd, 2, [](double a, double b, double) { return a + b; }},
    {TypedOp::kSubtract, 2, [](double a, double b, double) { return a - b; }},
    {TypedOp::kMultiply, 2, [](double a, double b, double) { return a * b; }},
    {TypedOp::kDivide, 2, [](double a, double b, double) { return a / b; }},
    {TypedOp::kNegate, 1, [](double a, double, double) { return -a; }},
    {TypedOp::kMagnitude, 1, [](double a, double, double) { return std::abs(a); }},
    {TypedOp::kMaximum, 2,
     [](double a, double b, double) {
       return std::isnan(a) || std::isnan(b) ? a + b : a > b ? a : b;
     }},
    {TypedOp::kMinimum, 2,
     [](double a, double b, double) {
       return std::isnan(a) || std::isnan(b) ? a + b : a < b ? a : b;
     }},
    {TypedOp::kLess, 2, [](double a, double b, double) { return a < b ? 1.0 : 0.0; }},
    {TypedOp::kEqual, 2, [](double a, double b, double) { return a == b ? 1.0 : 0.0; }},
    {TypedOp::kWhere, 3, [](double a, double b, double c) { return a != 0 ? b : c; }},
    {TypedOp::kRelu, 1, [](double a, double, double) { return a < 0 ? 0 : a; }},
    {TypedOp::kSign, 1, [](double a, double, double) { return double((0 < a) - (a < 0)); }},
    {TypedOp::kLeaky, 3, [](double a, double b, double c) { return a > 0 ? b : c * b; }},
    {TypedOp::kFloor, 1, [](double a, double, double) { return std::floor(a); }},
    {TypedOp::kCeil, 1, [](double a, double, double) { return std::ceil(a); }},
    {TypedOp::kRound, 1, [](double a, double, double) { return std::nearbyint(a); }},
    {TypedOp::kTrunc, 1, [](double a, double, double) { return std::trunc(a); }},
    {TypedOp::kSquareRoot, 1, [](double a, double, double) { return std::sqrt(a); }},
    {TypedOp::kReciprocal, 1, [](double a, double, double) { return 1 / a; }},
    {TypedOp::kClamp, 3,
     [](double a, double b, double c) {
       const double raised = std::isnan(a) || a >= b ? a : b;
       return std::isnan(a) || raised <= c ? raised : c;
     }},
};

// The operation in T: of floats the double that + − × ÷ and roots are rounded from rounds right.
template <class T>
T applied(const Op& op, T a, T b, T c) {
  return static_cast<T>(op.of(a, b, c));
}

template <class T>
bool same(T a, T b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}
// Whether the operation says what it gives: bounds are no NaN, and which of two zeros is an extreme
// is open.
template <class T>
bool is_settled(TypedOp op, T a, T b, T c) {
  if (op == TypedOp::kMaximum || op == TypedOp::kMinimum) return a != 0 || b != 0;
  if (op != TypedOp::kClamp) return true;
  return !std::isnan(b) && !std::isnan(c) && (a == 0) + (b == 0) + (c == 0) < 2;
}

// n numbers, of which some are special, that are such as bfloat16 and float16 hold.
std::vector<float> narrow_numbers(Philox& random, int64_t n) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kSpecial[] = {kNan, -kNan, kInf, -kInf, 0.0f, -0.0f, 1.0f, 1.0f, 2.5f, -0.5f};
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) {
    const uint64_t bits = random.next_u64();
    value = bits % 4 == 0
                ? kSpecial[bits / 4 % std::size(kSpecial)]
                : to_float(to_bf16(to_float(to_f16(static_cast<float>(random.normal())))));
    value = to_float(to_f16(value));
  }
  return x;
}

// A random chain of up to `most` steps over three operands, of which some are one number, as it is
// computed number by number and by run_chain.
template <class T>
void check_random_chain(Philox& random, int64_t n, int most) {
  constexpr int kOperands = 3;
  const auto count = static_cast<size_t>(n);
  const int steps_count = 1 + static_cast<int>(random.next_u64() % static_cast<uint64_t>(most));
  uint32_t singles = 0;
  std::vector<std::vector<T>> want;
  for (int i = 0; i < kOperands; ++i) {
    const std::vector<float> x = narrow_numbers(random, n);
    want.emplace_back(x.begin(), x.end());
    if (n == 0 || random.next_u64() % 3 != 0) continue;
    singles |= uint32_t{1} << i;
    std::fill(want.back().begin(), want.back().end(), want.back()[0]);
  }
  // What is read where the last result goes, the first operand, unless that is one number. Memory
  // is not aligned.
  std::vector<std::vector<T>> memory = want;
  std::vector<const T*> registers;
  for (auto& x : memory) {
    x.insert(x.begin(), T{1});
    registers.push_back(x.data() + 1);
  }
  const bool in_place = (singles & 1) == 0;
  std::vector<std::vector<T>> stored(static_cast<size_t>(steps_count), std::vector<T>(count));
  std::vector<T*> results;
  std::vector<ChainStep> steps;
  std::vector<bool> is_stored;
  for (int i = 0; i < steps_count; ++i) {
    Op op = kOps[random.next_u64() % std::size(kOps)];
    ChainStep step;
    size_t from[kMaxArguments];
    for (int a = 0; a < kMaxArguments; ++a) {
      int at = static_cast<int>(random.next_u64() % static_cast<uint64_t>(kOperands + i));
      // Only the last result may be nowhere.
      if (at >= kOperands && !is_stored[static_cast<size_t>(at - kOperands)])
        at = kOperands + i - 1;
      const bool is_before = i > 0 && at == kOperands + i - 1;
      step.arguments[a] = is_before ? ChainStep::kBefore : static_cast<int8_t>(at);
      from[a] = static_cast<size_t>(at);
    }
    for (size_t j = 0; j < count; ++j) {
      if (!is_settled(op.op, want[from[0]][j], want[from[1]][j], want[from[2]][j])) op = kOps[0];
    }
    step.op = op.op;
    const bool is_last = i + 1 == steps_count;
    is_stored.push_back(is_last || random.next_u64() % 2 == 0);
    if (is_stored.back()) step.result = static_cast<int8_t>(i);
    steps.push_back(step);
    std::vector<T> result(count);
    for (size_t j = 0; j < count; ++j) {
      result[j] = applied(op, want[from[0]][j], want[from[1]][j], want[from[2]][j]);
    }
    want.push_back(std::move(result));
    results.push_back(is_last && in_place ? memory[0].data() + 1
                                          : stored[static_cast<size_t>(i)].data());
    registers.push_back(results.back());
  }
  CAPTURE(n, steps_count, singles);
  if constexpr (std::is_same_v<T, float>) {
    // As narrow floats first, which leaves the operand whose place the last result takes.
    for (const bool is_half : {false, true}) {
      std::vector<uint16_t> got(count + 1, 0xABCD);
      run_chain(steps, registers.data(), results.data(), n, {got.data(), is_half}, singles);
      CHECK(got.back() == 0xABCD);
      for (size_t j = 0; j < count; ++j) {
        const float wanted = want.back()[j];
        const float rounded = is_half ? to_float(to_f16(wanted)) : to_float(to_bf16(wanted));
        const float number = is_half ? to_float(f16{got[j]}) : to_float(bf16{got[j]});
        REQUIRE(same(number, rounded));
      }
    }
    run_chain(steps, registers.data(), results.data(), n, {}, singles);
  } else {
    run_chain(steps, registers.data(), results.data(), n, singles);
  }
  for (int i = 0; i < steps_count; ++i) {
    if (!is_stored[static_cast<size_t>(i)]) continue;
    for (size_t j = 0; j < count; ++j) {
      INFO("step " << i << " number " << j);
      REQUIRE(
          same(results[static_cast<size_t>(i)][j], want[static_cast<size_t>(kOperands + i)][j]));
    }
  }
}

}  // namespace

TEST_CASE("a chain cuts to bfloat16 what is that already, at every length") {
  Philox random(6);
  const ChainStep rounds{.op = TypedOp::kToBf16, .result = 0};
  on_every_target([&] {
    for (int64_t n = 0; n < 300; n += n < 40 ? 1 : 37) {
      const std::vector<float> x = narrow_numbers(random, n);
      const float* const registers[] = {x.data()};
      float* const results[] = {nullptr};
      std::vector<uint16_t> narrow(static_cast<size_t>(n + 1), 0xABCD);
      run_chain({&rounds, 1}, registers, results, n, {narrow.data(), false, true});
      CHECK(narrow.back() == 0xABCD);
      for (int64_t j = 0; j < n; ++j) {
        const bf16 wanted = to_bf16(x[static_cast<size_t>(j)]);
        REQUIRE((narrow[static_cast<size_t>(j)] == wanted.bits ||
                 std::isnan(x[static_cast<size_t>(j)])));
      }
    }
  });
}

TEST_CASE("a step of a chain is its operation, of numbers or one number, at every length") {
  Philox random(7);
  on_every_target([&] {
    for (int64_t n = 0; n <= 70; ++n) {
      for (int i = 0; i < 40; ++i) check_random_chain<float>(random, n, 1);
      for (int i = 0; i < 20; ++i) check_random_chain<double>(random, n, 1);
    }
    for (int i = 0; i < 100; ++i) {
      check_random_chain<float>(random, 1000 + i, 1);
      check_random_chain<double>(random, 1000 + i, 1);
    }
  });
}

TEST_CASE("a chain is its steps one after the other") {
  Philox random(5);
  on_every_target([&] {
    for (int64_t n = 0; n < 1200; n += n < 70 ? 1 : 37) {
      for (int i = 0; i < 4; ++i) {
        check_random_chain<float>(random, n, 9);
        check_random_chain<double>(random, n, 9);
      }
    }
  });
}
