// What Tab makes of a line.
#include "lib/runtime/chat/completion.h"

#include <filesystem>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"

namespace lumen::runtime {
namespace {

using Words = std::vector<std::string>;

TEST_CASE("words that the end of a line may become") {
  const Words words = {"/save", "/set", "/show"};
  REQUIRE(complete_word("/s", 0, words).words == Words{"/save ", "/set ", "/show "});
  REQUIRE(complete_word("/show", 0, words).words == Words{"/show "});
  REQUIRE(complete_word("/x", 0, words).words.empty());
  REQUIRE(complete_word("/set to", 5, {"top-k", "temp"}).words == Words{"top-k "});
  REQUIRE(common_beginning({"/save ", "/set ", "/show "}) == "/s");
  REQUIRE(common_beginning({}).empty());
  REQUIRE(common_beginning({"\u00e4", "\u00f6"}).empty());  // which share their first byte
}

TEST_CASE("names of files, as they are typed") {
  const std::string directory = lumen::testing::temporary_directory();
  for (const char* name : {"notes.txt", "note two.txt", ".hidden", "bad\x1bname", "don't"}) {
    io::write_file_atomically(directory + "/" + name, "text");
  }
  std::filesystem::create_directory(directory + "/nested");
  const auto complete = [&](const std::string& typed) {
    const std::string line = "/read " + typed;
    const Completion completion = complete_file(line, 6);
    Words words;
    for (const std::string& word : completion.words) {
      words.push_back(line.substr(6, completion.begin - 6) + word);
    }
    return words;
  };
  const std::string in = directory + "/";
  REQUIRE(complete(in) ==
          Words{in + "don't ", in + "nested/", in + "note\\ two.txt ", in + "notes.txt "});
  REQUIRE(complete(in + "notes") == Words{in + "notes.txt "});
  REQUIRE(complete(in + "note\\ t") == Words{in + "note\\ two.txt "});
  REQUIRE(complete("'" + in + "note t") == Words{"'" + in + "note two.txt' "});
  REQUIRE(complete("first " + in + "ne") == Words{"first " + in + "nested/"});
  REQUIRE(complete("'a b' \"" + in + "ne") == Words{"'a b' \"" + in + "nested/"});
  REQUIRE(complete(in + ".h") == Words{in + ".hidden "});
  REQUIRE(complete(in + "x").empty());
  REQUIRE(complete(in + "missing/x").empty());
  // What is offered is read back as that name.
  REQUIRE(split_names(complete(in + "note\\ t")[0]) == Words{in + "note two.txt"});
}

}  // namespace
}  // namespace lumen::runtime
