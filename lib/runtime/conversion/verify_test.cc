// lumen-convert --verify: what is the same passes, what is not does not.
#include "lib/runtime/conversion/verify.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "lib/io/model_files.h"
#include "lib/io/sha256.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::run_tool_process;

TEST_CASE("divergence, likeliest tokens and perplexity of logits by hand") {
  const std::vector<float> p = {0, 0, 1, 0}, q = {0, std::log(3.0f), 0, 1, 5, 9};
  // Two positions of two tokens; the other vocabulary has one token more, which does not count.
  const Array source = Array::from<float>(p, {2, 2}), other = Array::from<float>(q, {2, 3});
  const std::vector<int32_t> ids = {1, 0};
  const Agreement a = compare_logits(source, other, ids);
  CHECK(a.positions == 2);
  // (1/2, 1/2) against (1/4, 3/4), and (e, 1)/(e + 1) against (1, e^4)/(e^4 + 1).
  const double first = 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3);
  const double x = std::exp(1) / (std::exp(1) + 1), y = 1 / (std::exp(4) + 1);
  const double second = x * std::log(x / y) + (1 - x) * std::log((1 - x) / (1 - y));
  CHECK(a.mean_divergence == Approx((first + second) / 2).epsilon(1e-6));
  CHECK(a.largest_divergence == Approx(second).epsilon(1e-6));
  CHECK(a.same_first == 0);
  CHECK(a.largest_difference == Approx(5));
  CHECK(a.source_perplexity == Approx(2));
  CHECK(a.perplexity == Approx(4));
  CHECK(compare_logits(source, source, ids).mean_divergence == 0);
}

TEST_CASE("--verify compares a model with what was made of it") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "llama"}});
  const std::string directory =
      model_directory(def, tiny_config("llama"), text::TokenizerKind::kByteLevelBpe);
  const std::string gguf = converted(directory);
  const auto run = [](const testing::Arguments& arguments) {
    return run_tool_process("lumen-convert", arguments);
  };
  const auto same = run({directory, gguf, "--verify", "--json"});
  CAPTURE(same.out, same.err);
  REQUIRE(same.exit_code == 0);
  const io::Json report = io::parse_json(same.out, "");
  CHECK(report["agrees"] == true);
  CHECK(report["mean_kl"] < 1e-6);
  CHECK(report["same_top_1"] == 1);
  CHECK(report["text"] == "the same ids from both tokenizers");
  CHECK(contains(run({directory, gguf, "--verify"}).out, "the same token at 100.00 %"));
  // Another one of the same shape, whose weights are drawn anew.
  NamedArrays tensors = io::open_model(directory).tensors;
  for (auto& [name, array] : tensors) {
    Array copy = nn::float32_copy(array);
    for (float& value : copy.as_mutable<float>()) value *= name == "model.norm.weight" ? -90 : 1;
    array = copy;
  }
  io::write_safetensors(directory + "/model.safetensors", tensors);
  const auto other = run({directory, gguf, "--verify", "--json"});
  CAPTURE(other.out, other.err);
  CHECK(other.exit_code == 3);
  CHECK(io::parse_json(other.out, "")["agrees"] == false);
  CHECK(contains(other.err, "the mean divergence is above 0.1"));
  CHECK(run({directory, gguf, "--verify", "--max-kl", "1000"}).exit_code == 0);
  const auto alone = run({directory, "--verify"});
  testing::require_error(alone, 2, "lumen-convert");
  testing::require_error(run({directory, gguf, "--verify", "--type", "f16"}), 2, "lumen-convert");
}

TEST_CASE("--inspect --hashes tells the bytes of tensors apart") {
  const std::string model = testing::random_model();
  const auto shown = run_tool_process("lumen-convert", {"--inspect", model, "--hashes", "--json"});
  REQUIRE(shown.exit_code == 0);
  const io::Json report = io::parse_json(shown.out, "");
  const io::ModelFiles files = io::open_model(model);
  REQUIRE(report["tensors"].size() == files.tensors.size());
  for (const io::Json& tensor : report["tensors"]) {
    const Array& array = files.tensors.at(tensor["name"].get<std::string>());
    CHECK(tensor["sha256"] == io::sha256(std::span(array.data(), array.bytes())));
  }
  const std::string hash = report["tensors"][0]["sha256"];
  CHECK(contains(run_tool_process("lumen-convert", {"--inspect", model, "--hashes"}).out, hash));
  testing::require_error(run_tool_process("lumen-convert", {model, "a.gguf", "--hashes"}), 2,
                         "lumen-convert");
}

TEST_CASE("--list-archs names what can be read and written") {
  const auto text = run_tool_process("lumen-convert", {"--list-archs"});
  REQUIRE(text.exit_code == 0);
  CHECK(contains(text.out, "\n  qwen3_moe\n"));
  CHECK(contains(text.out, "\n  q4_k_m\n"));
  const io::Json json =
      io::parse_json(run_tool_process("lumen-convert", {"--list-archs", "--json"}).out, "");
  for (const models::ModelDef* def : models::model_list()) {
    for (const std::string_view type : def->model_types) {
      CHECK(std::ranges::count(json["model_types"], io::Json(type)) == 1);
    }
  }
  CHECK(json["gguf_architectures"].size() > 40);
  testing::require_error(run_tool_process("lumen-convert", {"a", "b.gguf", "--list-archs"}), 2,
                         "lumen-convert");
}

}  // namespace
}  // namespace lumen::runtime
