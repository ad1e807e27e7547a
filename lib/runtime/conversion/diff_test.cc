// lumen-convert --diff: tensors one by one.
#include "lib/runtime/conversion/diff.h"

#include <cmath>

#include "lib/io/model_files.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::require_error;
using testing::run_tool_process;

TEST_CASE("largest, root mean square and cosine by hand, for any number of threads") {
  const std::vector<float> a = {1, 2, -2, 0}, b = {1, 0, -2, 1}, none = {0, 0, 0, 0};
  const Array x = Array::from<float>(a, {2, 2}), y = Array::from<float>(b, {2, 2});
  const Array zeros = Array::from<float>(none, {2, 2});
  ThreadPool one(1), three(3);
  TensorDifference row;
  compare_numbers(x, y, one, row);
  CHECK(row.largest == 2);
  CHECK(row.rms == Approx(std::sqrt(5.0 / 4)));
  CHECK(row.cosine == Approx(5 / std::sqrt(9.0 * 6)));
  compare_numbers(x, zeros, one, row);
  CHECK(row.cosine == 0);
  compare_numbers(zeros, zeros, one, row);
  CHECK(row.cosine == 1);
  std::vector<float> p(200'003), q(p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = std::sin(static_cast<float>(i));
    q[i] = p[i] + 1e-3f * std::cos(static_cast<float>(7 * i));
  }
  const Array many = Array::from<float>(p, {std::ssize(p)});
  const Array others = Array::from<float>(q, {std::ssize(q)});
  TensorDifference again;
  compare_numbers(many, others, one, row);
  compare_numbers(many, others, three, again);
  CHECK(row.rms == again.rms);
  CHECK(row.cosine == again.cosine);
  CHECK(row.rms == Approx(1e-3 / std::sqrt(2)).epsilon(1e-2));
}

TEST_CASE("--diff sees through the order of rows in GGUF, and what types lose") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "llama"}});
  const std::string directory =
      model_directory(def, tiny_config("llama"), text::TokenizerKind::kByteLevelBpe);
  const auto run = [](const testing::Arguments& arguments) {
    return run_tool_process("lumen-convert", arguments);
  };
  const std::string place = lumen::testing::temporary_directory();
  const std::string exact = place + "/f32.gguf", rounded = place + "/q8_0.gguf";
  REQUIRE(run({directory, exact, "--type", "f32"}).exit_code == 0);
  REQUIRE(run({directory, rounded, "--type", "q8_0"}).exit_code == 0);
  const auto same = run({directory, exact, "--diff", "--json"});
  CAPTURE(same.err);
  REQUIRE(same.exit_code == 0);
  const io::Json report = io::parse_json(same.out, "");
  CHECK(report["fits"] == true);
  CHECK(report["tensors"].size() > 10);
  for (const io::Json& row : report["tensors"]) {
    CAPTURE(row.dump());
    CHECK(row["max_abs"] == 0);
    CHECK(row["cosine"] == 1);
  }
  const auto lossy = run({directory, rounded, "--diff", "--json"});
  REQUIRE(lossy.exit_code == 0);
  const io::Json losses = io::parse_json(lossy.out, "");
  for (const io::Json& row : losses["tensors"]) {
    CAPTURE(row.dump());
    const bool is_matrix = row["shape"].size() == 2 && row["types"][1] == "q8_0";
    if (is_matrix) {
      CHECK(row["max_abs"] > 0);
      CHECK(row["rms"] < row["max_abs"]);
    }
    CHECK(row["cosine"] > 0.999);
  }
  CHECK(contains(run({directory, rounded, "--diff"}).out, "least alike: "));
  // The same file again, and one that lacks a tensor.
  CHECK(contains(run({exact, exact, "--diff"}).out, "the same numbers"));
  io::Json other = tiny_config("llama");
  other["num_hidden_layers"] = other["num_hidden_layers"].get<int>() + 1;
  const std::string deeper = model_directory(def, other, text::TokenizerKind::kByteLevelBpe);
  const auto unlike = run({directory, deeper, "--diff"});
  CHECK(unlike.exit_code == 3);
  CHECK(contains(unlike.out, "only in " + deeper));
  require_error(run({directory, "--diff"}), 2, "lumen-convert");
  require_error(run({directory, exact, "--diff", "--verify"}), 2, "lumen-convert");
  require_error(run({directory, exact, "--diff", "--type", "f16"}), 2, "lumen-convert");
  require_error(run({directory, place + "/missing.gguf", "--diff"}), 66, "lumen-convert");
}

}  // namespace
}  // namespace lumen::runtime
