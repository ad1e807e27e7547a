// Every expected result of the shared data, for every format.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/text/tokenizer.h"

namespace lumen::text {
namespace {

using Ids = std::vector<int32_t>;

// encode and decode of every case of one expectation file.
void check_cases(const Tokenizer& tokenizer, const std::string& expected_path,
                 const EncodeOptions& plain, const EncodeOptions& special) {
  const io::Json expected = io::read_json(expected_path);
  for (const io::Json& c : *io::find(expected, "cases")) {
    const std::string text = io::get_string(c, "text");
    INFO(expected_path << ": " << quoted(text));
    const Ids ids = io::find(c, "ids")->get<Ids>();
    CHECK(tokenizer.encode(text, plain) == ids);
    const io::Json* with_special = io::find(c, "ids_special");
    CHECK(tokenizer.encode(text, special) ==
          (with_special != nullptr ? with_special->get<Ids>() : ids));
    if (io::find(c, "decoded") != nullptr) {
      CHECK(tokenizer.decode(ids) == io::get_string(c, "decoded"));
    }
  }
}

}  // namespace

TEST_CASE("tokenizer.json gives the ids and texts of Hugging Face tokenizers", "[tokenizers]") {
  LUMEN_SHARED_DATA(root, "tokenizers");
  for (const auto& entry : std::filesystem::directory_iterator(root + "/hf")) {
    const std::string name = entry.path().filename().string();
    const auto tokenizer = load_tokenizer(entry.path().string() + "/tokenizer.json");
    check_cases(*tokenizer, root + "/expected-hf/" + name + ".json", {.add_special = false},
                {.add_special = true});
  }
}

}  // namespace lumen::text
