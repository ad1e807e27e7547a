// lumen-convert --set: metadata of GGUF files.
#include <filesystem>

#include "lib/base/testing.h"
#include "lib/io/gguf.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::random_model;
using testing::require_error;
using testing::run_tool_process;

TEST_CASE("--set gives keys of a GGUF file other values, of the types that they have") {
  const std::string out = lumen::testing::temporary_directory() + "/out.gguf";
  const auto before = io::read_gguf(random_model());
  const auto made = run_tool_process(
      "lumen-convert", {random_model(), out, "--set", "general.name=Ada = 1", "--set",
                        "llama.rope.freq_base=50000", "--set", "own.flag=true", "--set",
                        "own.number=-7", "--set", "own.text=", "--set", "own.share=0.5"});
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  const auto file = io::read_gguf(out);
  CHECK(file->metadata.get_string("general.name") == "Ada = 1");
  CHECK(file->metadata.get_number("llama.rope.freq_base") == 50000);
  CHECK(file->metadata.find("llama.rope.freq_base")->type() == io::GgufType::kF32);
  CHECK(file->metadata.get_bool("own.flag", false));
  CHECK(file->metadata.get_int("own.number", -10, 10) == -7);
  CHECK(file->metadata.get_string("own.text").empty());
  CHECK(file->metadata.get_number("own.share") == 0.5);
  CHECK(file->tensors.size() == before->tensors.size());
  CHECK(run_tool_process("lumen-run", {out, "-p", "a", "--raw", "-n", "2"}).exit_code == 0);
}

TEST_CASE("keys that must match the tensors, and values of another type, are refused by name") {
  const std::string place = lumen::testing::temporary_directory();
  const auto refused = [&](const std::string& setting, const std::string& why) {
    CAPTURE(setting);
    const auto outcome =
        run_tool_process("lumen-convert", {random_model(), place + "/o.gguf", "--set", setting});
    CAPTURE(outcome.err);
    require_error(outcome, 2, "lumen-convert");
    CHECK(contains(outcome.err, setting.substr(0, setting.find('='))));
    CHECK(contains(outcome.err, why));
    CHECK_FALSE(std::filesystem::exists(place + "/o.gguf"));
  };
  for (const char* key :
       {"general.architecture=gpt2", "llama.block_count=1", "llama.embedding_length=8",
        "llama.attention.head_count=2", "llama.attention.head_count_kv=1", "llama.vocab_size=5",
        "llama.feed_forward_length=3", "llama.rope.dimension_count=4"}) {
    refused(key, "must match the tensors");
  }
  refused("tokenizer.ggml.tokens=a", "is the vocabulary");
  refused("tokenizer.ggml.model=gpt2", "is the vocabulary");
  refused("general.alignment=64", "is decided by what is written");
  refused("split.count=2", "is decided by what is written");
  refused("llama.context_length=long", "expected a whole number");
  refused("llama.rope.freq_base=fast", "expected a number");
  refused("tokenizer.ggml.eos_token_id=999999", "the vocabulary has only");
  refused("general.name", "has not the form KEY=VALUE");
  refused("=x", "has not the form KEY=VALUE");
  const auto directory =
      run_tool_process("lumen-convert", {random_model(), place + "/hf", "--set", "general.name=x"});
  require_error(directory, 2, "lumen-convert");
  CHECK(contains(directory.err, "--set is for GGUF files"));
}

}  // namespace
}  // namespace lumen::runtime
