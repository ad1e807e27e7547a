// Normalisations of images: groups of channels, and channels with given statistics.
#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/batch_norm.h"
#include "lib/kernels/group_norm.h"
#include "lib/kernels/streaming.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

using Floats = std::vector<float>;
constexpr float kEps = 1e-5f;

// Channels whose means lie `apart` from each other and far from 0, deviations between 0.5 and 1.5.
Floats image(Philox& random, int64_t batch, int64_t channels, int64_t pixels, double apart) {
  Floats x = random_floats(random, batch * channels * pixels);
  for (int64_t c = 0; c < batch * channels; ++c) {
    const double mean = apart * random.normal() + 3 * apart;
    const double deviation = 0.5 + random.uniform();
    for (int64_t i = 0; i < pixels; ++i) {
      float& v = x[c * pixels + i];
      v = static_cast<float>(mean + deviation * static_cast<double>(v));
    }
  }
  return x;
}

struct Results {
  Floats y, dx, dw, db;
};

Results computed(const GroupShape& s, const Floats& x, const Floats& w, const Floats& b,
                 const Floats& dy, int threads) {
  ThreadPool pool(threads);
  std::vector<double> workspace(group_norm_workspace_bytes(s) / sizeof(double) + 1);
  Results r = {x, x, w, w};
  group_norm(pool, s, x.data(), w.data(), b.data(), kEps, r.y.data());
  group_norm_backward(pool, s, x.data(), w.data(), dy.data(), DType::kF32, kEps, r.dx.data(),
                      r.dw.data(), r.db.data(), reinterpret_cast<std::byte*>(workspace.data()));
  return r;
}

// In double.
Results expected(const GroupShape& s, const Floats& x, const Floats& w, const Floats& b,
                 const Floats& dy) {
  Results r = {x, x, {}, {}};
  const int64_t n = s.channels * s.pixels;
  std::vector<double> dw(w.size()), db(w.size());
  for (int64_t group = 0; group < s.batch * s.groups; ++group) {
    const int64_t at = group * n, first = group % s.groups * s.channels;
    double mean = 0, variance = 0, g = 0, gx = 0;
    for (int64_t i = at; i < at + n; ++i) mean += static_cast<double>(x[i]) / n;
    for (int64_t i = at; i < at + n; ++i) variance += std::pow(x[i] - mean, 2) / n;
    const double scale = 1 / std::sqrt(variance + kEps);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t c = first + i / s.pixels;
      const double normal = (x[at + i] - mean) * scale, gradient = dy[at + i];
      r.y[at + i] = static_cast<float>(normal * w[c] + b[c]);
      g += gradient * w[c] / n;
      gx += gradient * w[c] * normal / n;
      dw[c] += gradient * normal;
      db[c] += gradient;
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t c = first + i / s.pixels;
      const double normal = (x[at + i] - mean) * scale;
      r.dx[at + i] = static_cast<float>(scale * (dy[at + i] * double{w[c]} - g - normal * gx));
    }
  }
  r.dw.assign(dw.begin(), dw.end());
  r.db.assign(db.begin(), db.end());
  return r;
}

void require_close(const Floats& got, const Floats& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(i << ": " << got[i] << ", not " << want[i]);
    REQUIRE(std::fabs(got[i] - want[i]) <= tolerance * (1 + std::fabs(want[i])));
  }
}

}  // namespace

TEST_CASE("group_norm of planes of any size, whose channels are far apart") {
  const GroupShape shapes[] = {{3, 2, 1, 1},   {2, 3, 4, 5},   {2, 2, 16, 64}, {1, 2, 3, 1030},
                               {1, 1, 9, 700}, {5, 8, 2, 256}, {1, 1, 1, 9001}};
  on_every_target([&] {
    Philox random(11);
    for (const GroupShape& s : shapes) {
      INFO(s.batch << " x " << s.groups << " x " << s.channels << " x " << s.pixels);
      for (const double apart : {0.0, 2.0}) {
        const int64_t channels = s.groups * s.channels;
        const Floats x = image(random, s.batch, channels, s.pixels, apart);
        const Floats w = random_floats(random, channels), b = random_floats(random, channels);
        const Floats dy = random_floats(random, static_cast<int64_t>(x.size()));
        const Results one = computed(s, x, w, b, dy, 1), two = computed(s, x, w, b, dy, 3);
        const Results want = expected(s, x, w, b, dy);
        if (s.channels * s.pixels > 1) {  // of one number dx is a difference of rounding errors
          require_close(one.dx, want.dx, 2e-5);
        }
        require_close(one.y, want.y, 2e-5);
        require_close(one.dw, want.dw, 2e-4);
        require_close(one.db, want.db, 2e-4);
        CHECK(one.y == two.y);
        CHECK(one.dx == two.dx);
        CHECK(one.dw == two.dw);
        CHECK(one.db == two.db);
      }
    }
  });
}

TEST_CASE("group_norm of numbers far from 0 has their variance, and of equal ones none") {
  on_every_target([&] {
    const GroupShape s = {1, 1, 2, 5000};
    const Floats w = {1, 1}, b = {0, 0};
    Philox random(12);
    Floats x = random_floats(random, 10000);
    for (float& v : x) v += 4096;
    const Results far = computed(s, x, w, b, x, 2);
    require_close(far.y, expected(s, x, w, b, x).y, 5e-4);  // of the mean, to the last bits of x
    const Floats equal(10000, 7.5f);
    for (const float v : computed(s, equal, w, b, x, 2).y) REQUIRE(v == 0);
  });
}

TEST_CASE("large results of group_norm and batch_norm_with are those of their parts") {
  // Planes that are not whole lines, so many that they are written past the caches.
  const int64_t channels = 6, pixels = 1001;
  const int64_t batch = streaming_bytes() / (channels * pixels * 4) + 2;
  Philox random(13);
  const Floats few = image(random, 1, channels, pixels, 1), dy = random_floats(random, 6 * 1001);
  const Floats w = random_floats(random, channels), b = random_floats(random, channels);
  const Floats mean = random_floats(random, channels), var(channels, 2.0f);
  Floats x, gradient;
  for (int64_t i = 0; i < batch; ++i) {
    x.insert(x.end(), few.begin(), few.end());
    gradient.insert(gradient.end(), dy.begin(), dy.end());
  }
  ThreadPool pool(2);
  auto check = [&](const Floats& many, const Floats& one) {
    bool same = true;
    for (int64_t i = 0; i < batch; ++i) {
      same &= std::equal(one.begin(), one.end(), many.begin() + i * channels * pixels);
    }
    CHECK(same);
  };
  const Results many = computed({batch, 2, 3, pixels}, x, w, b, gradient, 2);
  const Results one = computed({1, 2, 3, pixels}, few, w, b, dy, 1);
  check(many.y, one.y);
  check(many.dx, one.dx);
  for (const bool relu : {false, true}) {
    const BatchNormScale scale = {w.data(), b.data(), kEps, relu};
    Floats y(x.size()), part(few.size());
    batch_norm_with(pool, {batch, channels, pixels}, x.data(), scale, mean.data(), var.data(),
                    y.data());
    batch_norm_with(pool, {1, channels, pixels}, few.data(), scale, mean.data(), var.data(),
                    part.data());
    check(y, part);
  }
}

TEST_CASE("batch_norm_with takes channels of any number in runs") {
  const ChannelShape shapes[] = {{3, 1, 7},   {1, 600, 3}, {40, 1030, 1}, {2, 17, 1},
                                 {5, 70, 64}, {0, 3, 4},   {2, 0, 4}};
  on_every_target([&] {
    Philox random(14);
    for (const ChannelShape& s : shapes) {
      INFO(s.batch << " x " << s.channels << " x " << s.pixels);
      const Floats x = image(random, s.batch, s.channels, s.pixels, 1);
      const Floats w = random_floats(random, s.channels), b = random_floats(random, s.channels);
      const Floats mean = random_floats(random, s.channels);
      Floats var = random_floats(random, s.channels);
      for (float& v : var) v = v * v + 0.1f;
      Floats want(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const size_t c = i / s.pixels % s.channels;
        const double y = (double{x[i]} - mean[c]) / std::sqrt(double{var[c]} + kEps) * w[c] + b[c];
        want[i] = static_cast<float>(std::max(y, 0.0));
      }
      for (const int threads : {1, 3}) {
        ThreadPool pool(threads);
        Floats y(x.size());
        batch_norm_with(pool, s, x.data(), {w.data(), b.data(), kEps, true}, mean.data(),
                        var.data(), y.data());
        require_close(y, want, 1e-5);
      }
    }
  });
}
