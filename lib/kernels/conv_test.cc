#include "lib/kernels/conv.h"

#include <cmath>

#include "lib/base/random.h"
#include "lib/base/strings.h"
#include "lib/kernels/convolution/conv_pack.h"
#include "lib/kernels/convolution/direct_conv.h"
#include "lib/kernels/convolution/patch_conv.h"
#include "lib/kernels/convolution/winograd.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/tiles/amx_emulation.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

std::vector<float> numbers(int64_t n, Philox& random) {
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = static_cast<float>(random.uniform()) * 2 - 1;
  return x;
}

void check_close(const std::vector<float>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(got[i] - want[i]) <= 2e-5 * (1 + std::abs(want[i])))) {
      INFO("element " << i << ": got " << got[i] << ", want " << want[i]);
      REQUIRE(false);
    }
  }
}

struct Results {
  std::vector<float> y, dx, dw;
};

// The three functions of conv.h, or those of one way to compute them.
struct Convolution {
  decltype(&conv2d_workspace_bytes) bytes, input_grad_bytes, weight_grad_bytes;
  decltype(&conv2d) forward;
  decltype(&conv2d_input_grad) input_grad;
  decltype(&conv2d_weight_grad) weight_grad;
};
constexpr Convolution kConv2d = {conv2d_workspace_bytes,
                                 conv2d_input_grad_workspace_bytes,
                                 conv2d_weight_grad_workspace_bytes,
                                 conv2d,
                                 conv2d_input_grad,
                                 conv2d_weight_grad};
constexpr Convolution kPatches = {patch_conv_workspace_bytes,
                                  patch_input_grad_workspace_bytes,
                                  patch_weight_grad_workspace_bytes,
                                  patch_conv,
                                  patch_input_grad,
                                  patch_weight_grad};
constexpr Convolution kDirect = {direct_conv_workspace_bytes,
                                 direct_input_grad_workspace_bytes,
                                 direct_weight_grad_workspace_bytes,
                                 direct_conv,
                                 direct_input_grad,
                                 direct_weight_grad};

Results run(const Convolution& conv, const ConvShape& s, const std::vector<float>& x,
            const std::vector<float>& w, const std::vector<float>& bias,
            const std::vector<float>& dy, int threads) {
  ThreadPool pool(threads);
  const size_t bytes = std::max({conv.bytes(s, threads), conv.input_grad_bytes(s, threads),
                                 conv.weight_grad_bytes(s, threads)});
  std::vector<float> memory(bytes / sizeof(float) + 16, NAN);
  auto* workspace =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  Results r{std::vector<float>(dy.size(), NAN), std::vector<float>(x.size(), NAN),
            std::vector<float>(w.size(), NAN)};
  conv.forward(pool, s, x.data(), w.data(), bias.data(), r.y.data(), workspace);
  conv.input_grad(pool, s, dy.data(), w.data(), r.dx.data(), workspace);
  conv.weight_grad(pool, s, x.data(), dy.data(), r.dw.data(), workspace);
  return r;
}

// Output extents follow from the others.
ConvShape shaped(ConvShape s) {
  auto extent = [](int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
    return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  };
  s.out_height = extent(s.in_height, s.kernel_height, s.stride_y, s.padding_y, s.dilation_y);
  s.out_width = extent(s.in_width, s.kernel_width, s.stride_x, s.padding_x, s.dilation_x);
  return s;
}

const ConvShape kShapes[] = {
    {1, 1, 1, 1, 1, 0, 0, 1, 1},
    {2, 3, 7, 9, 5, 0, 0, 3, 3, 1, 1, 1, 1},
    {3, 1, 28, 28, 6, 0, 0, 5, 5, 1, 1, 2, 2},
    {5, 6, 14, 14, 16, 0, 0, 5, 5},
    {9, 70, 4, 4, 40, 0, 0, 3, 3, 1, 1, 1, 1},
    {2, 3, 32, 32, 64, 0, 0, 3, 3, 1, 1, 1, 1},
    {2, 8, 11, 12, 9, 0, 0, 1, 1},
    {2, 8, 11, 13, 9, 0, 0, 1, 1, 2, 2},
    {2, 4, 15, 17, 6, 0, 0, 3, 2, 2, 3, 1, 0, 1, 2},
    {2, 4, 15, 17, 6, 0, 0, 2, 3, 3, 1, 2, 4, 2, 3, 2},
    {3, 12, 9, 8, 12, 0, 0, 3, 3, 1, 1, 1, 1, 1, 1, 12},
    {130, 2, 3, 3, 4, 0, 0, 3, 3},
    {300, 2, 1, 2, 3, 0, 0, 1, 2, 1, 1, 0, 1},
    {1, 2, 1, 300, 3, 0, 0, 1, 5, 1, 2, 0, 2, 1, 2},
    {1, 2, 30, 31, 13, 0, 0, 25, 23},
    {2, 2, 5, 5, 2, 0, 0, 1, 1, 4, 4, 2, 2},
    {1, 700, 3, 3, 33, 0, 0, 1, 1},
    {1, 5, 6, 6, 600, 0, 0, 3, 3, 1, 1, 1, 1},
};

// Shapes that direct_conv.h takes: several bands, the last one shorter; every number of channels up
// to a tile's and one more; dilation; padding on one side; more padding than the kernel reaches.
const ConvShape kDirectShapes[] = {
    {1, 40, 31, 30, 7, 0, 0, 3, 3, 1, 1, 1, 1},
    {2, 24, 40, 43, 4, 0, 0, 5, 3, 1, 1, 2, 0},
    {2, 4, 19, 17, 1, 0, 0, 3, 3},
    {2, 1, 19, 18, 2, 0, 0, 3, 5, 1, 1, 1, 2},
    {2, 2, 18, 18, 3, 0, 0, 1, 1},
    {3, 3, 17, 19, 5, 0, 0, 5, 5, 1, 1, 4, 4},
    {17, 5, 20, 21, 13, 0, 0, 4, 3, 1, 1, 1, 2},
    {2, 3, 25, 40, 6, 0, 0, 3, 3, 1, 1, 2, 3, 2, 3},
    {2, 12, 20, 20, 6, 0, 0, 3, 3, 1, 1, 1, 1, 1, 1, 3},
    {1, 9, 30, 200, 9, 0, 0, 7, 7, 1, 1, 3, 3, 1, 1, 9},
    {2, 3, 16, 17, 5, 0, 0, 2, 2, 1, 1, 3, 2},
    {2, 8, 1, 200, 8, 0, 0, 1, 9, 1, 1, 0, 4},
};

// Shapes for which winograd_pays: odd extents, every padding, channels that fill no vector, tiles
// and channels that take several blocks.
const ConvShape kWinogradShapes[] = {
    {3, 33, 9, 11, 37, 0, 0, 3, 3, 1, 1, 1, 1},  {4, 32, 12, 9, 45, 0, 0, 3, 3},
    {3, 49, 7, 8, 34, 0, 0, 3, 3, 1, 1, 2, 2},   {2, 50, 15, 13, 32, 0, 0, 3, 3, 1, 1, 2, 0},
    {1, 32, 3, 210, 32, 0, 0, 3, 3, 1, 1, 1, 1}, {2, 530, 12, 11, 32, 0, 0, 3, 3, 1, 1, 1, 1},
    {2, 32, 31, 30, 35, 0, 0, 3, 3, 1, 1, 1, 1}, {70, 40, 3, 3, 40, 0, 0, 3, 3},
    {16, 32, 4, 4, 530, 0, 0, 3, 3, 1, 1, 1, 1},
};

// ‖got − want‖ / ‖want‖.
double relative_error(const std::vector<float>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(difference / norm);
}

// A convolution of random numbers and what it gives in double precision.
struct Example {
  explicit Example(const ConvShape& shape)
      : s(shape),
        x(numbers(s.batch * s.in_channels * s.in_height * s.in_width, random)),
        w(numbers(s.out_channels * s.in_channels / s.groups * s.kernel_height * s.kernel_width,
                  random)),
        bias(numbers(s.out_channels, random)),
        dy(numbers(s.batch * s.out_channels * s.out_height * s.out_width, random)),
        want(reference::conv2d(s, x, w, bias, dy)) {}

  Results run(int threads, const Convolution& conv = kConv2d) const {
    return ::run(conv, s, x, w, bias, dy, threads);
  }
  std::string name() const {
    return str("x [", s.batch, ", ", s.in_channels, ", ", s.in_height, ", ", s.in_width,
               "], kernel ", s.kernel_height, " x ", s.kernel_width, ", groups ", s.groups);
  }

  ConvShape s;
  Philox random{5};
  std::vector<float> x, w, bias, dy;
  reference::Conv want;
};

void check_equal(const Results& a, const Results& b) {
  REQUIRE(a.y == b.y);
  REQUIRE(a.dx == b.dx);
  REQUIRE(a.dw == b.dw);
}

void check_results(const Example& example, const Convolution& conv) {
  const Results one = example.run(1, conv);
  check_close(one.y, example.want.y);
  check_close(one.dx, example.want.dx);
  check_close(one.dw, example.want.dw);
  check_equal(one, example.run(3, conv));
}

}  // namespace

TEST_CASE("convolution and its gradients equal naive loops") {
  for (const ConvShape& open : kShapes) {
    const Example example(shaped(open));
    INFO(example.name());
    on_every_target([&] {
      check_results(example, kConv2d);
      check_results(example, kPatches);
    });
  }
}

TEST_CASE("convolutions without packed patches equal naive loops") {
  for (const ConvShape& open : kDirectShapes) {
    const Example example(shaped(open));
    INFO(example.name());
    const ConvShape grad = input_grad_shape(example.s);
    Convolution direct = kDirect;
    if (grad.padding_y < 0 || grad.padding_x < 0) {
      REQUIRE_FALSE(direct_input_grad_pays(example.s));
      direct.input_grad_bytes = kPatches.input_grad_bytes;
      direct.input_grad = kPatches.input_grad;
    }
    on_every_target([&] {
      check_results(example, direct);
      check_results(example, kConv2d);
    });
  }
}

// Windows with strides: phases of rows and columns, a dilation that skips some, kernels of one
// pixel.
TEST_CASE("strided convolutions of single channels equal naive loops and products of patches") {
  for (const ConvShape& open : {ConvShape{2, 5, 20, 21, 5, 0, 0, 3, 3, 2, 2, 1, 1, 1, 1, 5},
                                ConvShape{1, 3, 57, 40, 3, 0, 0, 3, 5, 2, 3, 1, 4, 1, 1, 3},
                                ConvShape{2, 2, 19, 33, 4, 0, 0, 3, 2, 3, 2, 0, 1, 2, 4, 2},
                                ConvShape{1, 4, 9, 64, 4, 0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 4},
                                ConvShape{3, 2, 7, 7, 2, 0, 0, 7, 7, 2, 2, 3, 3, 1, 1, 2},
                                ConvShape{1, 2, 30, 5, 3, 0, 0, 4, 1, 1, 2, 5, 0, 1, 1, 1},
                                ConvShape{1, 2, 3, 3, 2, 0, 0, 2, 2, 4, 4, 4, 4, 1, 1, 2},
                                ConvShape{2, 3, 41, 58, 3, 0, 0, 3, 3, 2, 1, 1, 1, 1, 1, 3},
                                ConvShape{1, 2, 30, 33, 2, 0, 0, 2, 3, 1, 4, 1, 5, 2, 3, 2},
                                ConvShape{1, 2, 90, 300, 2, 0, 0, 3, 3, 2, 2, 1, 1, 1, 1, 2}}) {
    const Example example(shaped(open));
    INFO(example.name());
    Convolution direct = kDirect;
    direct.input_grad_bytes = kPatches.input_grad_bytes;
    direct.input_grad = kPatches.input_grad;
    on_every_target([&] {
      check_results(example, direct);
      check_results(example, kConv2d);
      const auto run_once = [&](const Convolution& conv) {
        return run(conv, example.s, example.x, example.w, example.bias, example.dy, 1);
      };
      CHECK(run_once(direct).y == run_once(kPatches).y);
      CHECK(run_once(kConv2d).dx == run_once(kPatches).dx);
    });
  }
  CHECK(direct_conv_pays(shaped({4, 32, 28, 28, 32, 0, 0, 3, 3, 2, 2, 1, 1, 1, 1, 32})));
}

// Rows of the padded input meet pixels between two rows, whose sums are thrown away.
TEST_CASE("an infinity reaches only the outputs that it is part of") {
  const ConvShape s = shaped({1, 2, 20, 20, 6, 0, 0, 3, 3});
  REQUIRE(direct_conv_pays(s));
  Example example(s);
  example.x[7 * 20 + 11] = INFINITY;
  const auto y = example.run(1).y;
  for (int64_t i = 0; i < 18; ++i) {
    for (int64_t j = 0; j < 18; ++j) {
      const bool touched = i >= 5 && i <= 7 && j >= 9 && j <= 11;
      REQUIRE(std::isfinite(y[i * 18 + j]) != touched);
    }
  }
}

TEST_CASE("an infinity in the input of a padded convolution is where naive loops have it") {
  const auto check = [](const ConvShape& open) {
    Example example(shaped(open));
    INFO(example.name());
    example.x[example.x.size() / 2] = INFINITY;
    const auto want = reference::conv2d(example.s, example.x, example.w, example.bias, example.dy);
    const Results got = example.run(1);
    const auto same = [](float a, float b) {
      return std::isnan(a) == std::isnan(b) && std::isfinite(a) == std::isfinite(b);
    };
    for (size_t i = 0; i < got.y.size(); ++i) {
      REQUIRE(same(got.y[i], static_cast<float>(want.y[i])));
    }
    for (size_t i = 0; i < got.dw.size(); ++i) {
      REQUIRE(same(got.dw[i], static_cast<float>(want.dw[i])));
    }
  };
  for (const ConvShape& open : kShapes) check(open);
  for (const ConvShape& open : kDirectShapes) check(open);
}

// In the last column of the image, which not every column of the kernel covers.
TEST_CASE("an infinity reaches only the weights that meet it") {
  for (const ConvShape& open :
       {ConvShape{1, 1, 3, 3, 1, 0, 0, 3, 3, 1, 1, 1, 1}, ConvShape{2, 3, 17, 19, 5, 0, 0, 3, 3},
        ConvShape{3, 33, 9, 11, 37, 0, 0, 3, 3, 1, 1, 1, 1}}) {
    Example example(shaped(open));
    INFO(example.name());
    example.x[example.s.in_width - 1] = INFINITY;
    example.x[2 * example.s.in_width - 1] = NAN;
    const auto want =
        reference::conv2d(example.s, example.x, example.w, example.bias, example.dy).dw;
    REQUIRE((std::isfinite(want[0]) && !std::isfinite(want[2])));
    on_every_target([&] {
      const auto dw = example.run(1).dw;
      for (size_t i = 0; i < dw.size(); ++i) {
        REQUIRE(std::isfinite(dw[i]) == std::isfinite(want[i]));
        if (std::isfinite(want[i])) REQUIRE(dw[i] == Approx(want[i]).margin(2e-5));
      }
    });
  }
}

TEST_CASE("a convolution is computed in the way that suits its shape") {
  CHECK(direct_conv_pays(shaped({64, 3, 32, 32, 6, 0, 0, 5, 5})));
  CHECK(direct_input_grad_pays(shaped({64, 6, 14, 14, 16, 0, 0, 5, 5})));
  CHECK(direct_weight_grad_pays(shaped({64, 6, 14, 14, 16, 0, 0, 5, 5})));
  // Strides; a single output pixel; many channels.
  for (const ConvShape& open :
       {ConvShape{4, 3, 32, 32, 6, 0, 0, 5, 5, 2, 2}, ConvShape{4, 16, 5, 5, 120, 0, 0, 5, 5},
        ConvShape{4, 256, 14, 14, 256, 0, 0, 1, 1}}) {
    CHECK_FALSE(direct_conv_pays(shaped(open)));
    CHECK_FALSE(direct_input_grad_pays(shaped(open)));
    CHECK_FALSE(direct_weight_grad_pays(shaped(open)));
  }
}

TEST_CASE("minimal filtering has the error of float32 and gives way to exact products") {
  for (const ConvShape& open : kWinogradShapes) {
    const Example example(shaped(open));
    INFO(example.name());
    REQUIRE(winograd_pays(example.s));
    on_every_target([&] {
      const Results one = example.run(1);
      CHECK(relative_error(one.y, example.want.y) < 1e-6);
      CHECK(relative_error(one.dx, example.want.dx) < 1e-6);
      CHECK(relative_error(one.dw, example.want.dw) < 1e-6);
      check_equal(one, example.run(2));
      check_equal(one, example.run(3));
      const ExactProductsScope exact;
      const Results direct = example.run(1);
      CHECK(relative_error(direct.y, example.want.y) < 4e-7);
      CHECK(direct.y != one.y);
      CHECK(direct.dx != one.dx);
      CHECK(direct.dw != one.dw);
    });
  }
}

TEST_CASE("minimal filtering in bfloat16 where there is a unit") {
  // Rounding both operands of the direct convolution: 2.4e-3.
  auto check = [](const Example& exact, const Example& example) {
    const Results one = example.run(1);
    check_equal(one, example.run(2));
    check_equal(one, example.run(3));
    if (bf16_unit() == nullptr) return check_equal(one, exact.run(1));
    for (const auto& [got, want] : {std::pair{&one.y, &example.want.y},
                                    {&one.dx, &example.want.dx},
                                    {&one.dw, &example.want.dw}}) {
      const double error = relative_error(*got, *want);
      CHECK(error > 1e-3);
      CHECK(error < 6e-3);
    }
    const ExactProductsScope scope;
    check_equal(example.run(1), exact.run(1));
  };
  for (const ConvShape& open : kWinogradShapes) {
    const Example exact(shaped(open));
    Example example = exact;
    example.s.bf16 = true;
    INFO(example.name());
    on_every_target([&] { check(exact, example); });
    INFO("emulated tiles");
    const TileUnitScope scope(&kEmulatedTileUnit);
    // Their panels have 16 channels, whatever the width of vectors is.
    if (&open == kWinogradShapes) {
      on_every_target([&] { check(exact, example); });
    } else {
      check(exact, example);
    }
  }
}

TEST_CASE("convolutions of nothing") {
  ConvShape s{0, 3, 5, 5, 2, 3, 3, 3, 3};
  ThreadPool pool(2);
  std::vector<float> dw(54, NAN);
  conv2d(pool, s, nullptr, nullptr, nullptr, nullptr, nullptr);
  conv2d_input_grad(pool, s, nullptr, nullptr, nullptr, nullptr);
  conv2d_weight_grad(pool, s, nullptr, nullptr, dw.data(), nullptr);
  CHECK(dw == std::vector<float>(54, 0.0f));
}
