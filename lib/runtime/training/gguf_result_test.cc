// A run whose result is a GGUF file, too.
#include <filesystem>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/gguf.h"
#include "lib/io/json.h"
#include "lib/runtime/tool/tool_process.h"
#include "lib/runtime/training/text_recipes.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::require_error;
using testing::run_tool_process;

namespace fs = std::filesystem;

// lumen-train with a recipe on short texts and what `more` adds to it.
testing::Outcome train_texts(const std::string& out, const std::string& model,
                             const testing::Arguments& more) {
  const std::string directory = testing::text_recipe(testing::kLlama).directory;
  const std::string recipe = directory + "gguf.toml";
  io::write_file_atomically(recipe,
                            model +
                                "[[data.train]]\npath = \"texts.jsonl\"\n[data]\nmax_length = 32\n"
                                "on_too_long = \"split\"\n[train]\nsteps = 2\nbatch_size = 8\n");
  testing::Arguments arguments = {recipe, "--out", out, "-t", "1", "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_tool_process("lumen-train", arguments);
}

constexpr const char* kTokenizer = "[tokenizer]\ntype = \"char\"\n";

TEST_CASE(
    "export.format adds a GGUF file of the type of export.quant, which goes with the result") {
  const std::string out = lumen::testing::temporary_directory() + "/run";
  const std::string model = testing::kLlama + std::string(kTokenizer);
  const auto run = [&](const testing::Arguments& more) { return train_texts(out, model, more); };
  const auto made = run({"--set", R"(export.format=["hf","gguf"])", "--set", "export.quant=q8_0"});
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  REQUIRE(contains(made.err, "and, as GGUF, model.gguf"));
  REQUIRE(io::Json::parse(made.out)["gguf"] == "model.gguf");
  REQUIRE(fs::exists(out + "/model.safetensors"));
  const auto gguf = io::read_gguf(out + "/model.gguf");
  REQUIRE(gguf->find_tensor("blk.0.attn_q.weight")->dtype == DType::kQ8_0);
  const auto answered =
      run_tool_process("lumen-run", {out + "/model.gguf", "-p", "the cat", "--raw", "-n", "4"});
  CAPTURE(answered.err);
  REQUIRE(answered.exit_code == 0);
  // A result without one leaves none of an earlier run.
  REQUIRE(run({"--resume", "auto", "--set", "train.steps=3"}).exit_code == 0);
  REQUIRE_FALSE(fs::exists(out + "/model.gguf"));
}

TEST_CASE("an adapter becomes adapter.gguf, merged it is part of model.gguf") {
  const std::string base = lumen::testing::temporary_directory() + "/base";
  REQUIRE(train_texts(base, testing::kLlama + std::string(kTokenizer), {}).exit_code == 0);
  const std::string model = "[model]\npath = \"" + base + "\"\n[lora]\nrank = 2\n";
  const std::string out = lumen::testing::temporary_directory() + "/run";
  auto made = train_texts(out, model, {"--set", R"(export.format=["hf","gguf"])"});
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  REQUIRE(fs::exists(out + "/adapter.gguf"));
  const testing::Arguments ask = {base, "-p", "the cat", "--raw", "-n", "4", "--temp", "0"};
  for (const std::string& adapter : {out, out + "/adapter.gguf"}) {
    testing::Arguments with = ask;
    with.insert(with.end(), {"--lora", adapter});
    REQUIRE(run_tool_process("lumen-run", with).exit_code == 0);
  }
  made = train_texts(out, model,
                     {"--set", R"(export.format=["hf","gguf"])", "--set", "export.merge_lora=true",
                      "--set", "export.quant=q8_0", "--resume", "auto"});
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  REQUIRE(fs::exists(out + "/model.gguf"));
  REQUIRE_FALSE(fs::exists(out + "/adapter.gguf"));
}

TEST_CASE("what cannot be a GGUF file is refused before the run") {
  const std::string out = lumen::testing::temporary_directory() + "/run";
  const auto refused = [&](const std::string& model, const testing::Arguments& more,
                           const std::string& why) {
    const auto outcome = train_texts(out, model, more);
    CAPTURE(outcome.err);
    require_error(outcome, 2, "lumen-train");
    REQUIRE(contains(outcome.err, why));
  };
  const std::string llama = testing::kLlama + std::string(kTokenizer);
  const std::string lstm = testing::kLstm + std::string(kTokenizer);
  refused(llama, {"--set", "export.format=gguf"}, "is always written");
  refused(llama, {"--set", "export.quant=q8_0"}, "export.format does not name gguf");
  refused(llama, {"--set", R"(export.format=["hf","onnx"])"}, "one of hf, gguf");
  refused(llama, {"--set", R"(export.format=["hf","gguf"])", "--set", "export.quant=q9"},
          "expected one of f32, ");
  refused(lstm, {"--set", R"(export.format=["hf","gguf"])"}, "GGUF has no name for a lstm");
}

}  // namespace
}  // namespace lumen::runtime
