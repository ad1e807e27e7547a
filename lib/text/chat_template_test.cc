#include "lib/text/chat_template.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lib/base/error.h"
#include "lib/base/testing.h"

using lumen::Error;
using lumen::text::ChatTemplate;
using lumen::text::CivilTime;
using lumen::text::Json;

namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Json read_json(const std::string& path) {
  return Json::parse(read_text(path));
}

ChatTemplate::Options frozen_clock() {
  ChatTemplate::Options options;
  options.now = CivilTime::parse("2025-07-10T12:00:00");
  return options;
}

std::string render(const std::string& source, const Json& variables = Json::object()) {
  return ChatTemplate::parse(source, "test").render(variables, frozen_clock());
}

// The text, or "error: …".
std::string outcome(const std::string& source, const Json& variables,
                    const ChatTemplate::Syntax& syntax) {
  try {
    return ChatTemplate::parse(source, "test", syntax).render(variables, frozen_clock());
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
}

void run_conformance(const Json& suite) {
  for (const Json& unit : suite["cases"]) {
    // This case's context was saved after the template had popped its first element.
    if (unit["name"] == "array.pop() with index") continue;
    const std::string source = unit[unit.contains("template") ? "template" : "chat_template"];
    const Json variables =
        unit.value(unit.contains("context") ? "context" : "data", Json::object());
    const Json options = unit.value("options", Json::object());
    ChatTemplate::Syntax syntax;
    syntax.trim_blocks = options.value("trim_blocks", bool(suite["default_trim_blocks"]));
    syntax.lstrip_blocks = options.value("lstrip_blocks", bool(suite["default_lstrip_blocks"]));
    const std::string actual = outcome(source, variables, syntax);
    INFO(unit["name"] << ": " << source);
    if (unit.contains("expected")) {
      CHECK(actual == unit["expected"].get<std::string>());
    } else {
      CHECK(actual.substr(0, 7) == "error: ");
    }
  }
}

}  // namespace

TEST_CASE("conformance suites of other implementations", "[chat_template]") {
  LUMEN_SHARED_DATA(folder, "chat-templates/conformance");
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    INFO(file.path().filename());
    run_conformance(read_json(file.path()));
  }
}

TEST_CASE("real models' templates render as transformers renders them", "[chat_template]") {
  LUMEN_SHARED_DATA(folder, "chat-templates");
  const Json contexts = read_json(folder + "/contexts/contexts.json");
  for (const auto& file : std::filesystem::directory_iterator(folder + "/rendered")) {
    const Json model = read_json(file.path());
    const std::string name = model["template"];
    const bool config = name.ends_with(".json");
    const std::string source = config ? *lumen::text::select_chat_template(
                                            read_json(folder + "/" + name)["chat_template"], false)
                                      : read_text(folder + "/" + name);
    const ChatTemplate parsed = ChatTemplate::parse(source, name);
    for (const Json& unit : model["cases"]) {
      INFO(file.path().filename() << " " << unit["context"]);
      Json variables = contexts[unit["context"].get<std::string>()];
      for (const char* token : {"bos_token", "eos_token"}) {
        if (model[token].is_string()) variables[token] = model[token];
      }
      for (const Json& absent : model["undefined_given_as_none"]) {
        if (!variables.contains(absent)) variables[absent.get<std::string>()] = nullptr;
      }
      std::string actual;
      try {
        actual = parsed.render(variables, frozen_clock());
      } catch (const Error& error) {
        actual = std::string("error: ") + error.what();
      }
      if (unit.contains("expected")) {
        CHECK(actual == unit["expected"].get<std::string>());
      } else {
        CHECK(actual.substr(0, 7) == "error: ");
      }
    }
  }
}
