#include "lib/kernels/elementwise_f64.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/loss.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/typed.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

constexpr double kInfF64 = std::numeric_limits<double>::infinity();
constexpr double kNanF64 = std::numeric_limits<double>::quiet_NaN();
constexpr long double kRootHalf = 0.70710678118654752440084436210484904L;
constexpr long double kTwiceRootTwoOverPi = 1.5957691216057307117597842397375275L;

using Exact = long double;

struct FunctionF64 {
  const char* name;
  BlockF64Fn run;
  int inputs;
  Exact (*exact)(Exact a, Exact b, Exact c);
  double max_ulp;
  double low, high;       // where random arguments come from
  bool absolute = false;  // max_ulp is of 1, not of the result
};

Exact logistic(Exact x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
Exact normal_cdf(Exact x) {
  return std::erfc(-x * kRootHalf) / 2;
}

const FunctionF64 kFunctionsF64[] = {
    {"add", block_f64::add, 2, [](Exact a, Exact b, Exact) { return a + b; }, 0.501, -9, 9},
    {"sub", block_f64::sub, 2, [](Exact a, Exact b, Exact) { return a - b; }, 0.501, -9, 9},
    {"mul", block_f64::mul, 2, [](Exact a, Exact b, Exact) { return a * b; }, 0.501, -9, 9},
    {"div", block_f64::div, 2, [](Exact a, Exact b, Exact) { return a / b; }, 0.501, -9, 9},
    {"maximum", block_f64::maximum, 2,
     [](Exact a, Exact b, Exact) {
       return std::isnan(a) || std::isnan(b) ? Exact{kNanF64} : std::fmax(a, b);
     },
     0, -9, 9},
    {"minimum", block_f64::minimum, 2,
     [](Exact a, Exact b, Exact) {
       return std::isnan(a) || std::isnan(b) ? Exact{kNanF64} : std::fmin(a, b);
     },
     0, -9, 9},
    {"neg", block_f64::neg, 1, [](Exact a, Exact, Exact) { return -a; }, 0, -9, 9},
    {"abs", block_f64::abs, 1, [](Exact a, Exact, Exact) { return std::fabs(a); }, 0, -9, 9},
    {"sign", block_f64::sign, 1, [](Exact a, Exact, Exact) { return Exact((0 < a) - (a < 0)); }, 0,
     -9, 9},
    {"relu", block_f64::relu, 1, [](Exact a, Exact, Exact) { return a < 0 ? 0 : a; }, 0, -9, 9},
    {"floor", block_f64::floor, 1, [](Exact a, Exact, Exact) { return std::floor(a); }, 0, -9, 9},
    {"ceil", block_f64::ceil, 1, [](Exact a, Exact, Exact) { return std::ceil(a); }, 0, -9, 9},
    {"round", block_f64::round, 1, [](Exact a, Exact, Exact) { return std::nearbyint(a); }, 0, -9,
     9},
    {"trunc", block_f64::trunc, 1, [](Exact a, Exact, Exact) { return std::trunc(a); }, 0, -9, 9},
    {"exp2", block_f64::exp2, 1, [](Exact a, Exact, Exact) { return std::exp2(a); }, 1.5, -1085,
     1030},
    {"log2", block_f64::log2, 1, [](Exact a, Exact, Exact) { return std::log2(a); }, 2, 0, 4},
    {"exp", block_f64::exp, 1, [](Exact a, Exact, Exact) { return std::exp(a); }, 1.5, -750, 712},
    {"log", block_f64::log, 1, [](Exact a, Exact, Exact) { return std::log(a); }, 1, 0, 4},
    {"expm1", block_f64::expm1, 1, [](Exact a, Exact, Exact) { return std::expm1(a); }, 2, -45, 45},
    {"log1p", block_f64::log1p, 1, [](Exact a, Exact, Exact) { return std::log1p(a); }, 1, -1, 9},
    {"sin", block_f64::sin, 1, [](Exact a, Exact, Exact) { return std::sin(a); }, 1, -1.1e6, 1.1e6},
    {"cos", block_f64::cos, 1, [](Exact a, Exact, Exact) { return std::cos(a); }, 1, -1.1e6, 1.1e6},
    {"sqrt", block_f64::sqrt, 1, [](Exact a, Exact, Exact) { return std::sqrt(a); }, 0.501, 0, 9},
    {"rsqrt", block_f64::rsqrt, 1, [](Exact a, Exact, Exact) { return 1 / std::sqrt(a); }, 1.5, 0,
     9},
    {"recip", block_f64::recip, 1, [](Exact a, Exact, Exact) { return 1 / a; }, 0.501, -9, 9},
    {"tanh", block_f64::tanh, 1, [](Exact a, Exact, Exact) { return std::tanh(a); }, 3, -22, 22},
    {"sigmoid", block_f64::sigmoid, 1, [](Exact a, Exact, Exact) { return logistic(a); }, 2.5, -750,
     50},
    {"silu", block_f64::silu, 1, [](Exact a, Exact, Exact) { return a * logistic(a); }, 3, -700,
     50},
    {"silu_slope", block_f64::silu_slope, 1,
     [](Exact a, Exact, Exact) { return logistic(a) * (1 + a * (1 - logistic(a))); }, 4, -30, 30,
     true},
    {"gelu", block_f64::gelu, 1, [](Exact a, Exact, Exact) { return a * normal_cdf(a); }, 6, -37,
     9},
    {"gelu of -1 to 1", block_f64::gelu, 1, [](Exact a, Exact, Exact) { return a * normal_cdf(a); },
     6, -1, 1},
    {"gelu_slope", block_f64::gelu_slope, 1,
     [](Exact a, Exact, Exact) {
       const Exact density = std::isinf(a) ? 0 : a * std::exp(-a * a / 2) * kTwiceRootTwoOverPi / 4;
       return normal_cdf(a) + density;
     },
     4, -9, 9, true},
    // The argument's rounding error grows with it, hence the narrow range.
    {"gelu_tanh", block_f64::gelu_tanh, 1,
     [](Exact a, Exact, Exact) {
       return a * logistic(kTwiceRootTwoOverPi * (a + 0.044715L * a * a * a));
     },
     4, -0.75, 9},
    {"gelu_tanh_slope", block_f64::gelu_tanh_slope, 1,
     [](Exact a, Exact, Exact) {
       const Exact x = std::fmin(std::fmax(a, -30), 30);
       const Exact s = logistic(kTwiceRootTwoOverPi * (x + 0.044715L * x * x * x));
       const Exact slope = kTwiceRootTwoOverPi * (1 + 3 * 0.044715L * x * x);
       return std::isnan(a) ? a : s * (1 + x * (1 - s) * slope);
     },
     4, -9, 9, true},
    {"hard_swish", block_f64::hard_swish, 1,
     [](Exact a, Exact, Exact) {
       return std::isnan(a) ? a : a * std::clamp<Exact>(a + 3, 0, 6) / 6;
     },
     4, -9, 9},
    {"hard_swish_slope", block_f64::hard_swish_slope, 1,
     [](Exact a, Exact, Exact) { return a <= -3  ? Exact{0}
                                        : a >= 3 ? Exact{1}
                                                 : a / 3 + 0.5L; }, 4,
     -9, 9, true},
    {"erf", block_f64::erf, 1, [](Exact a, Exact, Exact) { return std::erf(a); }, 2.5, -7, 7},
    {"clamp", block_f64::clamp, 3,
     [](Exact a, Exact b, Exact c) { return std::isnan(a) ? a : std::fmin(std::fmax(a, b), c); }, 0,
     -9, 9},
    {"leaky_relu", block_f64::leaky_relu, 3,
     [](Exact a, Exact b, Exact c) { return a > 0 ? b : c * b; }, 0.501, -9, 9},
    {"pow", block_f64::pow, 2, [](Exact a, Exact b, Exact) { return std::pow(a, b); }, 2, 0, 9},
    {"pow of -9 to 9", block_f64::pow, 2, [](Exact a, Exact b, Exact) { return std::pow(a, b); }, 2,
     -9, 9},
    {"pow beyond the exponents", block_f64::pow, 2,
     [](Exact a, Exact b, Exact) { return std::pow(a, b); }, 2, 0, 2000},
    {"log_sigmoid", block_f64::log_sigmoid, 1,
     [](Exact a, Exact, Exact) {
       return std::fmin(a, Exact{0}) - std::log1p(std::exp(-std::fabs(a)));
     },
     4, -60, 60},
};

// Both sides of where something overflows, becomes denormal or is computed another way.
const double kSpecialF64[] = {0.0,
                              -0.0,
                              1.0,
                              -1.0,
                              0.5,
                              -2.5,
                              3.0,
                              -3.0,
                              kInfF64,
                              -kInfF64,
                              kNanF64,
                              5e-324,
                              -5e-324,
                              1e-310,
                              DBL_MIN,
                              DBL_MAX,
                              -DBL_MAX,
                              709.7,
                              709.8,
                              -708.3,
                              -708.5,
                              -744.9,
                              -745.2,
                              -746.5,
                              1023.9,
                              1024.0,
                              -1022.5,
                              -1074.5,
                              -1075.5,
                              0x1p-54,
                              -0x1p-55,
                              1e-300,
                              0.75,
                              0.7499,
                              6.0,
                              5.99,
                              -38.5,
                              -38.9,
                              -39.5,
                              19.0,
                              20.5,
                              3.141592653589793,
                              1.5707963267948966,
                              6.283185307179586,
                              355.0,
                              1e6,
                              999999.5,
                              -1e15,
                              1e300,
                              1.0000000000000002,
                              0.9999999999999999,
                              0x1p52,
                              -0x1p53,
                              4503599627370495.5};

// |got − exact| in units of the last place of a double near `exact`.
double ulp_error_f64(double got, Exact exact, bool absolute) {
  const auto rounded = static_cast<double>(exact);
  if (std::isnan(rounded) || std::isnan(got)) {
    return std::isnan(rounded) && std::isnan(got) ? 0 : 1e9;
  }
  if (std::isinf(rounded) || std::isinf(got)) return rounded == got ? 0 : 1e9;
  const double magnitude = absolute ? 1 : std::max(std::fabs(rounded), DBL_MIN);
  return static_cast<double>(std::fabs(got - exact) /
                             std::ldexp(Exact{1}, std::ilogb(magnitude) - 52));
}

void check_f64(const FunctionF64& function, const std::vector<double> (&x)[3], double max_ulp) {
  const double* const in[] = {x[0].data(), x[1].data(), x[2].data()};
  std::vector<double> out(x[0].size());
  function.run(in, out.data(), static_cast<int64_t>(out.size()));
  double worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const Exact exact = function.exact(x[0][i], x[1][i], x[2][i]);
    const double error = ulp_error_f64(out[i], exact, function.absolute);
    if (error > worst) worst = error, where = i;
  }
  INFO(function.name << "(" << x[0][where] << ", " << x[1][where] << ") = " << out[where] << ", "
                     << worst << " ulp off");
  REQUIRE(worst <= max_ulp);
}

}  // namespace

TEST_CASE("element-wise functions of float64 agree with arithmetic in long double") {
  on_every_target([&] {
    Philox random(1);
    for (const FunctionF64& function : kFunctionsF64) {
      std::vector<double> x[3];
      for (auto& values : x) {
        for (int i = 0; i < 20'000; ++i) {
          values.push_back(function.low + (function.high - function.low) * random.uniform());
        }
      }
      for (size_t i = 0; i < 40; ++i) x[1][i] = x[0][i];
      for (size_t i = 0; i < 9'999; i += 3) x[0][i] *= 1e-3;
      for (size_t i = 0; i < 999; i += 9) x[0][i] *= 1e-9;
      check_f64(function, x, function.max_ulp);
    }
  });
}

TEST_CASE("element-wise functions of float64 follow C on special values") {
  on_every_target([&] {
    for (const FunctionF64& function : kFunctionsF64) {
      std::vector<double> x[3];
      for (double a : kSpecialF64) {
        for (double b : kSpecialF64) {
          if (function.inputs == 1 && b != 0) continue;
          if (function.inputs == 3 && std::isnan(b)) continue;  // bounds are numbers
          x[0].push_back(a);
          x[1].push_back(b);
          x[2].push_back(7);
        }
      }
      // A product with what is denormal, and arguments whose rounding counts.
      const bool is_tail = std::string_view(function.name).starts_with("gelu") ||
                           std::string_view(function.name) == "silu";
      check_f64(function, x, is_tail ? 1000 : function.max_ulp);
    }
  });
}

TEST_CASE("element-wise functions of float64 keep the sign of zero") {
  on_every_target([&] {
    for (BlockF64Fn function :
         {block_f64::sin, block_f64::tanh, block_f64::sqrt, block_f64::relu, block_f64::silu,
          block_f64::erf, block_f64::expm1, block_f64::log1p, block_f64::floor, block_f64::ceil,
          block_f64::round, block_f64::trunc}) {
      double x = -0.0;
      const double* in[] = {&x};
      function(in, &x, 1);
      CHECK(x == 0);
      CHECK(std::signbit(x));
    }
  });
}

TEST_CASE("divisions of float64 with a rest are exact") {
  const double values[] = {0.0,   -0.0,   1,       -1,       3,      -7,      0.1,
                           -2.5,  123.45, 1e-320,  -1e-308,  1e15,   -0x1p52, 0x1.fffffffffffffp51,
                           1e300, -1e300, kInfF64, -kInfF64, kNanF64};
  std::vector<double> x, y;
  for (const double a : values) {
    for (const double b : values) x.push_back(a), y.push_back(b);
  }
  Philox random(8);
  for (int i = 0; i < 4000; ++i) {  // and products of whole numbers, rounded up and down
    const double divisor = random.uniform() - 0.5;
    const double whole = std::floor(random.uniform() * std::exp2(i % 56));
    y.push_back(divisor);
    x.push_back(i % 2 == 0 ? whole * divisor : std::nextafter(whole * divisor, i % 4 - 2.0));
  }
  const double* in[] = {x.data(), y.data()};
  const auto n = static_cast<int64_t>(x.size());
  const auto same = [](double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
  };
  on_every_target([&] {
    std::vector<double> cut(x.size()), rest(x.size()), quotient(x.size());
    block_f64::mod(in, cut.data(), n);
    block_f64::remainder(in, rest.data(), n);
    block_f64::floor_divide(in, quotient.data(), n);
    for (size_t i = 0; i < x.size(); ++i) {
      INFO(x[i] << " and " << y[i]);
      REQUIRE(same(cut[i], std::fmod(x[i], y[i])));
      REQUIRE(same(rest[i], floor_modulo(x[i], y[i])));
      REQUIRE(same(quotient[i], floor_quotient(x[i], y[i])));
    }
  });
}

TEST_CASE("sines of float64 are libm's where the vectors' reduction ends") {
  std::vector<double> x;
  for (int n = 0; n < 200; ++n) x.push_back(n * 1.5707963267948966);
  for (double angle : {1e6, -1e6, 1.5e6, 1e9, -1e22, 1e300, kInfF64, kNanF64}) x.push_back(angle);
  const double* const in[] = {x.data()};
  on_every_target([&] {
    std::vector<double> sines(x.size()), cosines(x.size());
    block_f64::sin(in, sines.data(), static_cast<int64_t>(x.size()));
    block_f64::cos(in, cosines.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      INFO(x[i]);
      REQUIRE(ulp_error_f64(sines[i], std::sin(x[i]), false) <= 1);
      REQUIRE(ulp_error_f64(cosines[i], std::cos(x[i]), false) <= 1);
    }
  });
}

TEST_CASE("element-wise functions of float64 stay inside n elements at any length and alignment") {
  Philox random(2);
  on_every_target([&] {
    for (const FunctionF64& function : kFunctionsF64) {
      for (int64_t n = 0; n <= 70; ++n) {
        const auto offset = static_cast<size_t>(n % 4);
        // Exactly n elements, so that a sanitizer sees any access beyond.
        std::vector<double> x[3];
        for (auto& values : x) {
          for (size_t i = 0; i < offset + static_cast<size_t>(n); ++i) {
            values.push_back(0.5 + random.uniform());
          }
        }
        const double* in[] = {x[0].data() + offset, x[1].data() + offset, x[2].data() + offset};
        std::vector<double> out(static_cast<size_t>(n) + 2, -77.0);
        function.run(in, out.data() + 1, n);
        CHECK(out.front() == -77);
        CHECK(out.back() == -77);
        std::vector<double> in_place = x[0];
        in[0] = in_place.data() + offset;
        function.run(in, in_place.data() + offset, n);
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
          INFO(function.name << " n = " << n << " i = " << i);
          const size_t at = offset + i;
          const Exact exact = function.exact(x[0][at], x[1][at], x[2][at]);
          REQUIRE(ulp_error_f64(out[i + 1], exact, function.absolute) <= function.max_ulp);
          REQUIRE(std::bit_cast<uint64_t>(in_place[at]) == std::bit_cast<uint64_t>(out[i + 1]));
        }
      }
    }
  });
}
