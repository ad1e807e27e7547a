// Every file of the shared format suites is accepted or refused as its cases.json says.
#include <functional>
#include <string>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/gguf.h"
#include "lib/io/json.h"
#include "lib/io/model_files.h"
#include "lib/io/safetensors.h"

namespace lumen::io {
namespace {

enum class Outcome { kAccepted, kRefused, kUnsupported };

Outcome outcome_of(const std::function<void()>& read, std::string& message) {
  try {
    read();
    return Outcome::kAccepted;
  } catch (const Error& error) {
    message = error.what();
    if (error.kind() == ErrorKind::kUnsupported) return Outcome::kUnsupported;
    CHECK(error.kind() == ErrorKind::kMalformed);
    return Outcome::kRefused;
  }
}

// Runs `read` on each file of formats/`folder` and compares with cases.json.
void run_cases(const std::string& folder, const std::function<void(const std::string&)>& read,
               const std::function<void(const std::string&)>& read_header,
               const std::function<void(const std::string&)>& read_model) {
  const std::string directory = testing::shared_data("formats/" + folder);
  if (directory.empty()) return;
  for (const Json& one : read_json(directory + "/cases.json")) {
    const std::string path = directory + "/" + get_string(one, "file");
    const std::string expect = get_string(one, "expect");
    std::string message;
    CAPTURE(path, expect, get_string(one, "why"));
    const auto& reader = expect == "accept_header"                          ? read_header
                         : expect == "reject_model" || expect == "no_crash" ? read_model
                                                                            : read;
    const Outcome outcome = outcome_of([&] { reader(path); }, message);
    CAPTURE(message);
    if (expect.starts_with("accept")) {
      CHECK(outcome == Outcome::kAccepted);
    } else if (expect.starts_with("reject")) {
      CHECK(outcome != Outcome::kAccepted);
      CHECK(message.find('\n') == std::string::npos);
    }
  }
}

TEST_CASE("shared GGUF cases") {
  const auto read = [](const std::string& path) { read_gguf(path); };
  const auto header = [](const std::string& path) {
    read_gguf(path, {.allow_trailing = false, .header_only = true});
  };
  const auto model = [](const std::string& path) { open_model(path); };
  run_cases("gguf-handcrafted", read, header, model);
  run_cases("bad-gguf", read, header, model);
}

TEST_CASE("shared safetensors cases") {
  const auto read = [](const std::string& path) { read_safetensors(path); };
  run_cases("bad-safetensors", read, read, read);
}

}  // namespace
}  // namespace lumen::io
