#include "lib/optim/clip.h"

#include <cmath>
#include <limits>

#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/io/safetensors.h"

using namespace lumen;
using testing::refusal;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Array array(std::vector<float> values) {
  return Array::from<float>(values, {static_cast<int64_t>(values.size())});
}

}  // namespace

TEST_CASE("gradient norms of any p are PyTorch's") {
  const auto document = io::read_json(testing::source_path("testdata/goldens/optim.json"));
  const auto file =
      io::read_safetensors(testing::source_path("testdata/goldens/optim.safetensors"));
  std::vector<Array> gradients;
  for (const auto& tensor : file->tensors) {
    if (!tensor.name.starts_with("gradients/")) continue;
    const Array all = file->array(tensor);
    const int64_t size = all.elements() / all.shape()[0];
    gradients.push_back(Array::from<float>(all.as<float>().first(size), {size}));
  }
  REQUIRE(gradients.size() == 3);
  ThreadPool one(1), three(3);
  for (const io::Json& item : document["norms"]) {
    const double p = item["p"].is_string() ? double{kInfinity} : item["p"].get<double>();
    INFO(p);
    CHECK(optim::grad_norm(one, gradients, p) == Approx(item["norm"].get<double>()).epsilon(1e-7));
    CHECK(optim::grad_norm(one, gradients, p) == optim::grad_norm(three, gradients, p));
  }
}

TEST_CASE("norms show what is not finite and do not overflow") {
  ThreadPool pool(1);
  const Array fine = array({3, -4}), nan = array({1, kNan}), infinite = array({kInfinity, 1});
  const Array big = array({3e38f, 3e38f});
  for (double p : {2.0, 1.0, 3.0, double{kInfinity}}) {
    INFO(p);
    CHECK(std::isnan(optim::grad_norm(pool, std::vector{nan, fine}, p)));
    CHECK(std::isnan(optim::grad_norm(pool, std::vector{fine, nan, fine}, p)));
    CHECK(std::isinf(optim::grad_norm(pool, std::vector{fine, infinite}, p)));
  }
  CHECK(optim::grad_norm(pool, std::vector{big}) == Approx(3e38 * std::sqrt(2)));
  CHECK(optim::grad_norm(pool, {}) == 0);
  CHECK(testing::contains(
      refusal(ErrorKind::kMalformed, [&] { optim::grad_norm(pool, std::vector{fine}, 0); }),
      "expected above 0"));
}

TEST_CASE("gradients that are not float32, or missing, are named") {
  ThreadPool pool(1);
  const Array fine = array({1}), half = Array::zeros(DType::kF16, {1});
  auto message = [&](const std::vector<Array>& gradients) {
    return refusal(ErrorKind::kMalformed, [&] { optim::grad_norm(pool, gradients); });
  };
  CHECK(testing::contains(message({fine, half}), "gradient 1 is f16, expected f32"));
  CHECK(testing::contains(message({Array()}), "gradient 0 is missing"));
}

TEST_CASE("clipping") {
  CHECK(optim::clip_factor(0.5, 1) == 1);
  CHECK(optim::clip_factor(4, 1) == Approx(1 / (4 + 1e-6)));
  CHECK(optim::clip_factor(kInfinity, 1) == 0);
  CHECK(std::isnan(optim::clip_factor(kNan, 1)));
  ThreadPool pool(1);
  const std::vector<Array> gradients = {array({-5, 0.25f, 3}), array({kNan})};
  optim::clip_grad_value(pool, gradients, 1, 2);
  const auto clipped = gradients[0].as<float>();
  CHECK(std::vector<float>(clipped.begin(), clipped.end()) == std::vector<float>{-1, 0.5f, 1});
  CHECK(std::isnan(gradients[1].as<float>()[0]));
  for (double limit : {-1.0, double{kNan}}) {
    CHECK(testing::contains(
        refusal(ErrorKind::kMalformed, [&] { optim::clip_grad_value(pool, gradients, limit); }),
        "expected 0 or more"));
  }
}
