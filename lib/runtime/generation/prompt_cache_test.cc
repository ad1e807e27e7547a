#include "lib/runtime/generation/prompt_cache.h"

#include <filesystem>
#include <fstream>

#include "lib/base/testing.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/generation/session.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;

struct Run {
  std::string notice;
  GenerationResult result;
};

Run run(const std::string& cache, const std::string& prompt, RunOptions options = {}) {
  options.model = lumen::testing::source_path("testdata/models/random-spm.gguf");
  Session session = load_session(options);
  Generator generator = make_generator(options, session);
  Run run{load_prompt_cache(cache, generator), {}};
  Sampler sampler({.temperature = 0}, session.model->vocab());
  run.result = generator.generate(session.format.encode(prompt), sampler, {12, {}, {}}, true,
                                  [](std::string_view) {});
  save_prompt_cache(cache, generator);
  return run;
}

std::string read_bytes(const std::string& path) {
  return io::read_file(path, 1 << 30);
}
void write(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

TEST_CASE("a prompt cache saves reading the common prefix again") {
  const std::string directory = lumen::testing::temporary_directory();
  const std::string cache = directory + "/cache";
  const Run first = run(cache, "one two three four five six");
  REQUIRE(first.notice.empty());
  REQUIRE(first.result.cached_tokens == 0);
  const Run again = run(cache, "one two three four five six");
  REQUIRE(again.notice.empty());
  REQUIRE(again.result.cached_tokens == again.result.prompt_tokens - 1);
  REQUIRE(again.result.token_ids == first.result.token_ids);
  const Run other = run(cache, "one two three more");
  REQUIRE(other.notice.empty());
  REQUIRE(other.result.cached_tokens > 1);
  REQUIRE(other.result.cached_tokens < other.result.prompt_tokens);
  // Now it holds the other text; a context shorter than it takes its beginning.
  RunOptions small;
  small.context = 20;
  const Run short_one = run(cache, "one", small);
  REQUIRE(short_one.notice.empty());
  REQUIRE(short_one.result.cached_tokens > 1);
}

TEST_CASE("a prompt cache that does not fit is ignored with one sentence, and replaced") {
  const std::string directory = lumen::testing::temporary_directory();
  const std::string cache = directory + "/cache";
  const auto want = run(cache, "one two three").result.token_ids;
  const std::string good = read_bytes(cache);
  const auto notice_of = [&](const std::string& content, RunOptions options = {}) {
    write(cache, content);
    const Run made = run(cache, "one two three", options);
    REQUIRE(made.result.cached_tokens == 0);
    if (options.kv == "f16") REQUIRE(made.result.token_ids == want);
    REQUIRE(made.notice.starts_with("the prompt cache is not used: "));
    REQUIRE(made.notice.find('\n') == std::string::npos);
    REQUIRE(contains(made.notice, "cache: "));
    return made.notice;
  };
  REQUIRE(contains(notice_of("something else"), "no prompt cache"));
  REQUIRE(contains(notice_of(""), "empty"));
  for (const size_t size : {size_t{7}, size_t{95}, size_t{159}, good.size() - 1}) {
    notice_of(good.substr(0, size));
  }
  REQUIRE(contains(notice_of(good + "x"), "too long"));
  for (const size_t at : {size_t{8}, size_t{16}, size_t{24}, size_t{40}, size_t{96},
                          good.size() / 2, good.size() - 1}) {
    CAPTURE(at);
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x41);
    notice_of(bad);
  }
  RunOptions other_type;
  other_type.kv = "f32";
  REQUIRE(contains(notice_of(good, other_type), "another model"));
  REQUIRE(run(cache, "one two three", other_type).result.cached_tokens > 0);
  // A file that is none would be lost: it is refused before anything is computed.
  check_prompt_cache(cache);
  check_prompt_cache(directory + "/none");
  for (const size_t size : {size_t{0}, size_t{5}, size_t{100}}) {
    write(cache, good.substr(0, size));
    check_prompt_cache(cache);
  }
  write(cache, "my notes");
  REQUIRE(contains(
      lumen::testing::refusal(ErrorKind::kCannotCreate, [&] { check_prompt_cache(cache); }),
      "is there and is not a prompt cache"));
  // Nothing is left beside it.
  const std::filesystem::directory_iterator files(directory);
  REQUIRE(std::distance(begin(files), end(files)) == 1);
}

}  // namespace
}  // namespace lumen::runtime
