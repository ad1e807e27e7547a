#include "lib/io/hf_cache.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "lib/base/error.h"
#include "lib/base/testing.h"

namespace lumen::io {
namespace {

// Sets the cache's environment variables for one test, and restores them.
class CacheEnvironment {
 public:
  explicit CacheEnvironment(const std::map<std::string, std::string>& values) {
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) {
      if (const char* old = std::getenv(name)) old_[name] = old;
      const auto value = values.find(name);
      value == values.end() ? ::unsetenv(name) : ::setenv(name, value->second.c_str(), 1);
    }
  }
  ~CacheEnvironment() {
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) {
      const auto value = old_.find(name);
      value == old_.end() ? ::unsetenv(name) : ::setenv(name, value->second.c_str(), 1);
    }
  }

 private:
  std::map<std::string, std::string> old_;
};

std::string name_refusal(const std::string& name) {
  try {
    return "found " + find_model(name);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kMissing);
    return error.what();
  }
}

TEST_CASE("models are found in the cache, in the order of the variables") {
  const std::string root = testing::temporary_directory();
  const auto add_model = [](const std::string& cache, const std::string& commit) {
    const std::string model = cache + "/models--org--name";
    std::filesystem::create_directories(model + "/refs");
    std::filesystem::create_directories(model + "/snapshots/" + commit);
    std::ofstream(model + "/refs/main") << commit;
  };
  add_model(root + "/hub", "aaa");
  add_model(root + "/home/hub", "bbb");
  add_model(root + "/xdg/huggingface/hub", "ccc");
  add_model(root + "/user/.cache/huggingface/hub", "ddd");
  const std::map<std::string, std::string> all = {{"HF_HUB_CACHE", root + "/hub"},
                                                  {"HF_HOME", root + "/home"},
                                                  {"XDG_CACHE_HOME", root + "/xdg"},
                                                  {"HOME", root + "/user"}};
  std::map<std::string, std::string> some = all;
  const std::string tail = "/models--org--name/snapshots/";
  for (const auto& [variable, expected] :
       {std::pair<std::string, std::string>{"HF_HUB_CACHE", root + "/hub" + tail + "aaa"},
        {"HF_HOME", root + "/home/hub" + tail + "bbb"},
        {"XDG_CACHE_HOME", root + "/xdg/huggingface/hub" + tail + "ccc"},
        {"HOME", root + "/user/.cache/huggingface/hub" + tail + "ddd"}}) {
    const CacheEnvironment environment(some);
    CHECK(find_model("org/name") == expected);
    some.erase(variable);
  }
  const CacheEnvironment environment(all);
  CHECK(find_model("org/name@ddd") == root + "/user/.cache/huggingface/hub" + tail + "ddd");
  CHECK(name_refusal("org/name@other").find(root + "/home/hub/models--org--name") !=
        std::string::npos);
  CHECK(name_refusal("org/absent").find("not in the Hugging Face cache") != std::string::npos);
  CHECK(name_refusal("../org").find("no such file") != std::string::npos);
  CHECK(name_refusal("org/../name").find("no such file") != std::string::npos);
  CHECK(name_refusal("org/name@../../x").find("no such file") != std::string::npos);
  CHECK(name_refusal("https://huggingface.co/org/name").find("nothing is downloaded") !=
        std::string::npos);
  CHECK(name_refusal("absent.gguf").find("no such file") != std::string::npos);
  CHECK(find_model(root) == root);
  std::ofstream(root + "/hub/models--org--name/refs/main") << "../../../secret";
  CHECK(find_model("org/name") == root + "/home/hub" + tail + "bbb");
}

}  // namespace
}  // namespace lumen::io
