#include "lib/kernels/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/typed.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Function {
  const char* name;
  BlockFn run;
  int inputs;
  double (*exact)(double a, double b, double c);
  double max_ulp;
  float low, high;        // where random arguments come from
  bool absolute = false;  // max_ulp is of 1, not of the result
};

double sign(double x) {
  return (0 < x) - (x < 0);
}

// 0 where it would be no normal number any more.
double sigmoid(double x) {
  return x < -87 ? 0 : 1 / (1 + std::exp(-x));
}

const Function kFunctions[] = {
    {"add", block::add, 2, [](double a, double b, double) { return a + b; }, 0.5, -9, 9},
    {"sub", block::sub, 2, [](double a, double b, double) { return a - b; }, 0.5, -9, 9},
    {"mul", block::mul, 2, [](double a, double b, double) { return a * b; }, 0.5, -9, 9},
    {"div", block::div, 2, [](double a, double b, double) { return a / b; }, 0.5, -9, 9},
    {"mod", block::mod, 2, [](double a, double b, double) { return std::fmod(a, b); }, 0, -9, 9},
    {"remainder", block::remainder, 2,
     [](double a, double b, double) { return floor_modulo(a, b); }, 0.5, -9, 9},
    {"floor_divide", block::floor_divide, 2,
     [](double a, double b, double) { return floor_quotient(a, b); }, 0.5, -9, 9},
    {"less_than", block::less_than, 2, [](double a, double b, double) { return double(a < b); }, 0,
     -9, 9},
    {"equal", block::equal, 2, [](double a, double b, double) { return double(a == b); }, 0, -9, 9},
    {"maximum", block::maximum, 2,
     [](double a, double b, double) {
       return std::isnan(a) || std::isnan(b) ? kNan : std::fmax(a, b);
     },
     0, -9, 9},
    {"minimum", block::minimum, 2,
     [](double a, double b, double) {
       return std::isnan(a) || std::isnan(b) ? kNan : std::fmin(a, b);
     },
     0, -9, 9},
    {"where", block::where, 3, [](double a, double b, double c) { return a != 0 ? b : c; }, 0, -9,
     9},
    {"neg", block::neg, 1, [](double a, double, double) { return -a; }, 0, -9, 9},
    {"abs", block::abs, 1, [](double a, double, double) { return std::fabs(a); }, 0, -9, 9},
    {"exp2", block::exp2, 1, [](double a, double, double) { return std::exp2(a); }, 2, -160, 135},
    {"log2", block::log2, 1, [](double a, double, double) { return std::log2(a); }, 3, 0, 4},
    {"exp", block::exp, 1, [](double a, double, double) { return std::exp(a); }, 2, -110, 95},
    {"log", block::log, 1, [](double a, double, double) { return std::log(a); }, 2, 0, 4},
    {"sin", block::sin, 1, [](double a, double, double) { return std::sin(a); }, 2, -1e5, 1e5},
    {"cos", block::cos, 1, [](double a, double, double) { return std::cos(a); }, 2, -1e5, 1e5},
    {"sqrt", block::sqrt, 1, [](double a, double, double) { return std::sqrt(a); }, 0.5, 0, 9},
    {"rsqrt", block::rsqrt, 1, [](double a, double, double) { return 1 / std::sqrt(a); }, 2, 0, 9},
    {"recip", block::recip, 1, [](double a, double, double) { return 1 / a; }, 0.5, -9, 9},
    {"tanh", block::tanh, 1, [](double a, double, double) { return std::tanh(a); }, 3, -11, 11},
    {"sigmoid", block::sigmoid, 1, [](double a, double, double) { return sigmoid(a); }, 4, -95, 30},
    {"silu", block::silu, 1, [](double a, double, double) { return a * sigmoid(a); }, 4, -80, 30},
    // The argument's rounding error grows with it, hence the narrow range for 4 ulp.
    {"gelu_tanh", block::gelu_tanh, 1,
     [](double a, double, double) {
       return a / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)));
     },
     4, -0.75, 9},
    {"gelu", block::gelu, 1,
     [](double a, double, double) { return a / 2 * std::erfc(-a * M_SQRT1_2); }, 4, -1, 9},
    {"silu_slope", block::silu_slope, 1,
     [](double a, double, double) { return sigmoid(a) * (1 + a * (1 - sigmoid(a))); }, 4, -30, 30,
     true},
    {"gelu_slope", block::gelu_slope, 1,
     [](double a, double, double) {
       const double density = std::isinf(a) ? 0 : a * std::exp(-a * a / 2) / std::sqrt(2 * M_PI);
       return std::erfc(-a * M_SQRT1_2) / 2 + density;
     },
     4, -9, 9, true},
    {"gelu_tanh_slope", block::gelu_tanh_slope, 1,
     [](double a, double, double) {
       const double x = std::fmin(std::fmax(a, -30), 30);
       const double s = sigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
       const double slope = 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
       return std::isnan(a) ? a : s * (1 + x * (1 - s) * slope);
     },
     4, -9, 9, true},
    {"hard_swish", block::hard_swish, 1,
     [](double a, double, double) {
       return std::isnan(a) ? a : a * std::clamp(a + 3, 0.0, 6.0) / 6;
     },
     4, -9, 9},
    {"hard_swish_slope", block::hard_swish_slope, 1,
     [](double a, double, double) { return a <= -3  ? 0
                                           : a >= 3 ? 1
                                                    : a / 3 + 0.5; }, 4, -9, 9,
     true},
    {"leaky_relu", block::leaky_relu, 3,
     [](double a, double b, double c) { return a > 0 ? b : static_cast<float>(c * b); }, 0, -9, 9},
    {"relu", block::relu, 1, [](double a, double, double) { return a < 0 ? 0 : a; }, 0, -9, 9},
    {"floor", block::floor, 1, [](double a, double, double) { return std::floor(a); }, 0, -9, 9},
    {"ceil", block::ceil, 1, [](double a, double, double) { return std::ceil(a); }, 0, -9, 9},
    {"round", block::round, 1, [](double a, double, double) { return std::nearbyint(a); }, 0, -9,
     9},
    {"trunc", block::trunc, 1, [](double a, double, double) { return std::trunc(a); }, 0, -9, 9},
    {"erf", block::erf, 1, [](double a, double, double) { return std::erf(a); }, 3, -5, 5},
    {"pow", block::pow, 2, [](double a, double b, double) { return std::pow(a, b); }, 1, 0, 9},
    {"expm1", block::expm1, 1, [](double a, double, double) { return std::expm1(a); }, 2, -9, 80},
    {"log1p", block::log1p, 1, [](double a, double, double) { return std::log1p(a); }, 2, -1, 9},
    {"sign", block::sign, 1, [](double a, double, double) { return sign(a); }, 0, -9, 9},
};

const float kSpecial[] = {
    0.0f,          -0.0f,          1.0f,        -1.0f,      0.5f,    -2.5f,   3.0f,
    kInf,          -kInf,          kNan,        1e-45f,     -1e-45f, 1e-40f,  1.1754944e-38f,
    3.4028235e38f, -3.4028235e38f, 88.7f,       88.8f,      -87.4f,  -103.9f, -104.5f,
    128.0f,        127.99f,        -126.5f,     -149.0f,    -150.5f, 1e-4f,   0.6249f,
    0.6251f,       3.1415927f,     1.5707964f,  31415.926f, 9.9e6f,  1.1e7f,  1e20f,
    1.0000001f,    0.99999994f,    16777217.0f, 1e10f};

// |got − exact| in units of the last place of a float near `exact`.
double ulp_error(float got, double exact, bool absolute = false) {
  const auto rounded = static_cast<float>(exact);
  if (std::isnan(exact) || std::isnan(got)) return std::isnan(exact) && std::isnan(got) ? 0 : 1e9;
  if (std::isinf(rounded) || std::isinf(got)) return rounded == got ? 0 : 1e9;
  const float magnitude = std::max(std::fabs(rounded), std::numeric_limits<float>::min());
  return std::fabs(got - exact) / std::ldexp(1.0, (absolute ? 0 : std::ilogb(magnitude)) - 23);
}

void check(const Function& function, const std::vector<float> (&x)[3]) {
  const auto n = static_cast<int64_t>(x[0].size());
  const float* in[3] = {x[0].data(), x[1].data(), x[2].data()};
  std::vector<float> out(x[0].size());
  function.run(in, out.data(), n, nullptr);
  double worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double exact = function.exact(x[0][i], x[1][i], x[2][i]);
    const double error = ulp_error(out[i], exact, function.absolute);
    if (error > worst) worst = error, where = i;
  }
  INFO(function.name << "(" << x[0][where] << ", " << x[1][where] << ") = " << out[where]);
  REQUIRE(worst <= function.max_ulp);
}

}  // namespace

TEST_CASE("element-wise functions agree with double arithmetic") {
  Philox random(1);
  on_every_target([&] {
    for (const Function& function : kFunctions) {
      std::vector<float> x[3];
      for (auto& values : x) {
        for (int i = 0; i < 20'000; ++i) {
          values.push_back(function.low +
                           (function.high - function.low) * static_cast<float>(random.uniform()));
        }
      }
      for (int i = 0; i < 40; ++i) x[1][static_cast<size_t>(i)] = x[0][static_cast<size_t>(i)];
      for (int i = 0; i < 99; i += 3) x[0][static_cast<size_t>(i)] *= 1e-3f;
      check(function, x);
    }
  });
}

TEST_CASE("element-wise functions follow C on special values") {
  on_every_target([&] {
    for (const Function& function : kFunctions) {
      std::vector<float> x[3];
      for (float a : kSpecial) {
        for (float b : kSpecial) {
          if (function.inputs == 1 && b != 0) continue;
          x[0].push_back(a);
          x[1].push_back(b);
          x[2].push_back(7);
        }
      }
      Function wide = function;
      // exp-based tails lose relative accuracy where the argument is rounded.
      if (std::string_view(function.name).starts_with("gelu")) wide.max_ulp = 20;
      check(wide, x);
    }
  });
}

TEST_CASE("element-wise functions keep the sign of zero") {
  on_every_target([&] {
    for (BlockFn function : {block::sin, block::tanh, block::sqrt, block::relu, block::silu}) {
      float x = -0.0f;
      const float* in[] = {&x};
      function(in, &x, 1, nullptr);
      CHECK(x == 0);
      CHECK(std::signbit(x));
    }
    float a = -6, b = 3;
    const float* in[] = {&a, &b};
    block::mod(in, &a, 1, nullptr);
    CHECK(std::signbit(a));
  });
}

TEST_CASE("rounded down, quotients and rests are those of whole numbers' division, bit for bit") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const float values[] = {
      0,    -0.0f,   1,       -1,     3,           -3,           6,     -6,
      7.5f, -7.5f,   0.1f,    -0.3f,  1e-40f,      -1e-40f,      1e30f, -1e30f,
      inf,  -inf,    nan,     2.5f,   16777215.0f, -16777218.0f, 1e-7f, 0x1p100f,
      0.7f, 123.45f, -0.001f, 1e-45f, 3.4e38f,     -3.4e38f,     9,     -10};
  std::vector<float> x, y;
  for (const float a : values) {
    for (const float b : values) x.push_back(a), y.push_back(b);
  }
  const float* in[] = {x.data(), y.data()};
  const auto n = static_cast<int64_t>(x.size());
  const auto same = [](float a, float b) {
    return (std::isnan(a) && std::isnan(b)) ||
           std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
  };
  on_every_target([&] {
    std::vector<float> rest(x.size()), quotient(x.size());
    block::remainder(in, rest.data(), n, nullptr);
    block::floor_divide(in, quotient.data(), n, nullptr);
    for (size_t i = 0; i < x.size(); ++i) {
      INFO(x[i] << " and " << y[i]);
      REQUIRE(same(rest[i], floor_modulo(x[i], y[i])));
      REQUIRE(same(quotient[i], floor_quotient(x[i], y[i])));
    }
  });
}

TEST_CASE("element-wise functions stay inside n elements at any length and alignment") {
  Philox random(2);
  on_every_target([&] {
    for (const Function& function : kFunctions) {
      for (int64_t n = 0; n <= 33; ++n) {
        const size_t offset = static_cast<size_t>(n % 4);
        // Exactly n elements, so that a sanitizer sees any access beyond.
        std::vector<float> x[3];
        for (auto& values : x) {
          for (size_t i = 0; i < offset + static_cast<size_t>(n); ++i) {
            values.push_back(0.5f + static_cast<float>(random.uniform()));
          }
        }
        const float* in[] = {x[0].data() + offset, x[1].data() + offset, x[2].data() + offset};
        std::vector<float> out(static_cast<size_t>(n) + 2, -77.0f);
        function.run(in, out.data() + 1, n, nullptr);
        CHECK(out.front() == -77);
        CHECK(out.back() == -77);
        std::vector<float> in_place = x[0];
        in[0] = in_place.data() + offset;
        function.run(in, in_place.data() + offset, n, nullptr);
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
          INFO(function.name << " n = " << n << " i = " << i);
          const size_t at = offset + i;
          const double exact = function.exact(x[0][at], x[1][at], x[2][at]);
          REQUIRE(ulp_error(out[i + 1], exact, function.absolute) <= function.max_ulp);
          REQUIRE(std::bit_cast<uint32_t>(in_place[at]) == std::bit_cast<uint32_t>(out[i + 1]));
        }
      }
    }
  });
}
