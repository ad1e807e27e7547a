// The corpus of scripts/make_hostile.py: every file opens or is refused, quickly, in little memory.
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/gguf.h"
#include "lib/io/model_files.h"
#include "lib/io/test_clock.h"
#include "lib/io/test_files.h"

namespace lumen::io {
namespace {

int64_t peak_kib() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Fresh corpus, or "" if there is no Python to make it.
std::string make_corpus() {
  const std::string directory = testing::temporary_directory() + "/hostile";
  const std::string script = testing::source_path("scripts/make_hostile.py");
  const std::string command = str("python3 '", script, "' '", directory, "' >/dev/null");
  return std::system(command.c_str()) == 0 ? directory : "";  // NOLINT: fixed words only
}

struct Opened {
  bool accepted = false;
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
  double milliseconds = 0;
};

Opened try_open(const std::string& path) {
  Opened result;
  const double start = thread_milliseconds();
  try {
    open_model(path);
    result.accepted = true;
  } catch (const Error& error) {
    result.kind = error.kind();
    result.message = error.what();
  }
  result.milliseconds = thread_milliseconds() - start;
  return result;
}

bool is_refusal(ErrorKind kind) {
  return kind == ErrorKind::kMalformed || kind == ErrorKind::kMissing ||
         kind == ErrorKind::kUnsupported;
}

TEST_CASE("the hostile corpus opens or is refused as its names say") {
  const std::string directory = make_corpus();
  if (directory.empty()) {
    testing::skip("python3 is needed to make the corpus");
    return;
  }
  const int64_t peak_before = peak_kib();
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    const Opened opened = try_open(entry.path());
    ++count;
    CAPTURE(name, opened.message, opened.milliseconds);
    if (!opened.accepted) {
      REQUIRE(is_refusal(opened.kind));
      REQUIRE(opened.message.find_first_of("\n\x1b") == std::string::npos);
      REQUIRE(opened.message.find(name.substr(0, 20)) != std::string::npos);
    }
    if (name.starts_with("accept-")) CHECK(opened.accepted);
    if (name.starts_with("reject-")) CHECK_FALSE(opened.accepted);
    CHECK(opened.milliseconds < 100);
  }
  CHECK(count > 7'000);
  if (kMeasured) CHECK(peak_kib() - peak_before < 64 * 1024);
}

TEST_CASE("every single-bit error of a GGUF file is survived") {
  const std::string good =
      tiny_llama_gguf().strings("tokenizer.ggml.tokens", {"a", "b", "c"}).finish();
  std::string bytes = good;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    try {
      parse_gguf(buffer_of(bytes), "t.gguf");
    } catch (const Error& error) {
      REQUIRE(is_refusal(error.kind()));
    }
    bytes[bit / 8] = good[bit / 8];
  }
}

}  // namespace
}  // namespace lumen::io
