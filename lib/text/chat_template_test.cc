#include "lib/text/chat_template.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lib/base/error.h"
#include "lib/base/testing.h"

using lumen::Error;
using lumen::text::ByteRange;
using lumen::text::ChatInput;
using lumen::text::ChatTemplate;
using lumen::text::CivilTime;
using lumen::text::Json;

namespace {

std::string read_template(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Json read_json(const std::string& path) {
  return Json::parse(read_template(path));
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
                                      : read_template(folder + "/" + name);
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

TEST_CASE("templates render as Python jinja2 renders them", "[chat_template]") {
  const Json goldens = read_json(lumen::testing::source_path("testdata/templates/goldens.json"));
  for (const Json& unit : goldens["cases"]) {
    ChatTemplate::Syntax syntax;
    syntax.trim_blocks = syntax.lstrip_blocks = unit["blocks"];
    const std::string actual = outcome(unit["template"], goldens["variables"], syntax);
    INFO(unit["template"].get<std::string>());
    if (unit.contains("text")) {
      CHECK(actual == unit["text"].get<std::string>());
    } else {
      CHECK(actual.substr(0, 7) == "error: ");
    }
  }
}

TEST_CASE("errors name the template and the line", "[chat_template]") {
  const auto message = [](const std::string& source) {
    return outcome(source, Json::object(), {});
  };
  CHECK(message("a\n{{ x.y }}") == "error: test:2: 'x' is undefined");
  CHECK(message("{% if true %}\n\n") ==
        "error: test:1: 'if' is not closed: the template ends before 'endif'");
  CHECK(message("\n\n{{ 1 | nothing }}") == "error: test:3: no filter named 'nothing'");
  CHECK(message("{{ raise_exception('no \x1b[31m\nroles') }}") ==
        "error: test:1: the template refuses this conversation: 'no \\x1b[31m\\nroles'");
  CHECK(message("{% include 'x' %}").find("needs other templates") != std::string::npos);
  CHECK(
      message("{% macro m() %}\n{{ none + 1 }}{% endmacro %}\n{{ m() }}").find("error: test:2: ") ==
      0);
  CHECK_THROWS_AS(ChatTemplate::parse("\xff", "test"), Error);
}

TEST_CASE("undefined and null differ", "[chat_template]") {
  CHECK(render("{{ a is defined }} {{ a is none }}", {{"a", nullptr}}) == "True True");
  CHECK(render("{{ a is defined }} {{ a is none }}") == "False False");
}

TEST_CASE("generation blocks report their bytes", "[chat_template]") {
  const auto parsed = ChatTemplate::parse(
      "{% for m in messages %}[{% generation %}{{ m }}{% endgeneration %}]{% endfor %}", "test");
  std::vector<ByteRange> ranges;
  ChatTemplate::Options options;
  options.generation = &ranges;
  CHECK(parsed.render({{"messages", {"é", "", "abc"}}}, options) == "[é][][abc]");
  CHECK(ranges == std::vector<ByteRange>{{1, 3}, {5, 5}, {7, 10}});
}

TEST_CASE("a conversation is rendered with the variables of apply_chat_template",
          "[chat_template]") {
  const auto parsed = ChatTemplate::parse(
      "{{ bos_token }}{{ messages[0].content }} {{ tools is none }} {{ documents is none }} "
      "{{ add_generation_prompt }} {{ eos_token is defined }} {{ mode }}",
      "test");
  ChatInput input;
  input.messages = Json::parse(R"([{"role": "user", "content": "hi"}])");
  input.bos_token = "<s>";
  input.extra = {{"mode", "fast"}};
  CHECK(lumen::text::render_chat(parsed, input, {}) == "<s>hi True True True False fast");
}

// How many beginnings of the messages are known from rendering all of them; each must be what
// rendering it by itself gives.
size_t known_beginnings(const ChatTemplate& parsed, const ChatInput& input) {
  lumen::text::RenderedBeginnings beginnings;
  std::string all;
  try {
    all = lumen::text::render_chat(parsed, input, frozen_clock(), &beginnings);
  } catch (const Error&) {
    return 0;
  }
  CHECK(all == lumen::text::render_chat(parsed, input, frozen_clock()));
  CHECK(beginnings.size() == input.messages.size() + 1);
  size_t known = 0;
  ChatInput part = input;
  part.messages = Json::array();
  for (size_t count = 0; count < beginnings.size(); ++count) {
    if (count > 0) part.messages.push_back(input.messages[count - 1]);
    if (!beginnings[count]) continue;
    ++known;
    INFO("the first " << count << " messages");
    CHECK(all.substr(0, beginnings[count]->shared) + beginnings[count]->rest ==
          lumen::text::render_chat(parsed, part, frozen_clock()));
  }
  return known;
}

// A conversation in which user and assistant take `turns` turns.
ChatInput conversation(int turns, bool calls_tools) {
  ChatInput input;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  for (int i = 0; i < turns; ++i) {
    const std::string number = std::to_string(i);
    input.messages.push_back({{"role", "user"}, {"content", "Q" + number}});
    if (calls_tools) {
      const Json call = {{"name", "f"}, {"arguments", {{"a", i}}}};
      input.messages.push_back(
          {{"role", "assistant"},
           {"content", ""},
           {"tool_calls",
            Json::array({{{"id", "123456789"}, {"type", "function"}, {"function", call}}})}});
      input.messages.push_back(
          {{"role", "tool"}, {"content", "R"}, {"tool_call_id", "123456789"}, {"name", "f"}});
    }
    input.messages.push_back({{"role", "assistant"}, {"content", "A" + number}});
  }
  return input;
}

TEST_CASE("beginnings of a conversation are rendered along with all of it", "[chat_template]") {
  ChatInput input = conversation(4, false);
  for (const bool prompt : {false, true}) {
    input.add_generation_prompt = prompt;
    const auto known = [&](const std::string& source) {
      INFO(source);
      return known_beginnings(ChatTemplate::parse(source, "test"), input);
    };
    const std::string begin = "{% for m in messages %}", text = "[{{ m.content }}]",
                      end = "{% endfor %}", ask = "{% if add_generation_prompt %}[{% endif %}";
    CHECK(known(begin + text + end + ask) == 9);
    CHECK(known(begin + text + "{% else %}nothing" + end + ask) == 9);
    CHECK(known("{% if messages[0].role == 'user' %}first{% endif %}{% for m in messages[1:] %}" +
                text + end + ask) == 8);
    CHECK(known("{% if messages %}" + begin + text + end + ask + "{% endif %}") == 8);
    CHECK(known(begin + text + end + "{{ messages | length }}{{ messages[-1].content }}") == 8);
    // What is asked after the loop is asked of each beginning; of none it is refused.
    CHECK(known(begin + text + end + "{% if messages[-1].role != 'assistant' %}" + ask +
                "{% endif %}") == 8);
    // The first time that a loop asks for its end comes as a surprise.
    CHECK(known(begin + "{% if loop.last %}!{% endif %}" + text + end + ask) == 8);
    CHECK(known(begin + text + "{{ loop.nextitem is defined }}" + end + ask) == 8);
    CHECK(known(begin + text + "{% if loop.index == 6 %}{% break %}{% endif %}" + end + ask) == 9);
    CHECK(known(begin + text + "{{ loop.length }}" + end + ask) == 2);
    CHECK(known(begin + text + "{{ loop.revindex }}" + end + ask) == 2);
    // Loops that only look for something.
    const std::string seek = "{% set ns = namespace(n=0) %}" + begin + "{% if m.content == 'A1' %}";
    CHECK(known(seek + "{% set ns.n = loop.index %}{% endif %}" + end + "{{ ns.n }}" + begin +
                text + end + ask) == 5);
    CHECK(known(seek + "{% set n = loop.index %}{% endif %}" + end + begin + text + end + ask) ==
          9);
    // What is changed behind the loop would not be as before for the next beginning.
    CHECK(known("{% set ns = namespace(n=0) %}" + begin + text + "{% set ns.n = ns.n + 1 %}" + end +
                "{{ ns.n }}") == 9);
    CHECK(known("{% set ns = namespace(n=0) %}" + begin + text + "{{ ns.n }}" + end +
                "{% set ns.n = 5 %}{{ ns.n }}") == 1);
    CHECK(known("{% set c = cycler(1, 2) %}" + begin + text + end + "{{ c.next() }}") == 1);
    CHECK(known("{% set j = joiner() %}" + begin + text + end + "{{ j() }}{{ j() }}") == 1);
    CHECK(known("{% set l = [1, 2] %}" + begin + text + end + "{{ l.pop() }}") == 1);
    CHECK(known("{% set g = [1, 2] | map('string') %}" + begin + text + end + "{{ g | list }}") ==
          1);
    CHECK(known(begin + "{{ loop.changed(m.role) }}" + end + ask) == 9);
    // What looks at all messages first depends on all.
    CHECK(known("{{ messages | length }}" + begin + text + end) == 1);
    CHECK(known("{% for m in messages[::-1] %}" + text + end + ask) == 1);
    CHECK(known("{% for m in messages if m.role == 'user' %}" + text + end + ask) == 1);
    CHECK(known("{% set x %}" + begin + text + end + "{% endset %}{{ x }}" + ask) == 1);
    CHECK(known("{{ messages.pop().content }}" + begin + text + end) == 1);
    CHECK(known("Hello" + ask) == 9);
  }
}

TEST_CASE("beginnings of real models' conversations are what they are by themselves",
          "[chat_template]") {
  LUMEN_SHARED_DATA(folder, "chat-templates/jinja");
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string name = file.path().filename();
    INFO(name);
    const auto parsed = ChatTemplate::parse(read_template(file.path()), name);
    for (const bool prompt : {false, true}) {
      for (const bool calls_tools : {false, true}) {
        ChatInput input = conversation(6, calls_tools);
        input.add_generation_prompt = prompt;
        const size_t known = known_beginnings(parsed, input);
        // Most take no rendering of their own.
        if (!calls_tools &&
            (name.starts_with("cz-") || name == "ik-Qwen-Qwen2.5-7B-Instruct.jinja")) {
          CHECK(known >= 12);
        }
      }
    }
  }
}

TEST_CASE("one of several templates is selected", "[chat_template]") {
  using lumen::text::select_chat_template;
  const Json list = Json::parse(
      R"([{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}])");
  CHECK(select_chat_template(nullptr, false) == std::nullopt);
  CHECK(select_chat_template("X", true) == "X");
  CHECK(select_chat_template(list, false) == "D");
  CHECK(select_chat_template(list, true) == "T");
  CHECK_THROWS_AS(select_chat_template(Json::parse("[]"), false), Error);
  CHECK_THROWS_AS(select_chat_template(Json(5), false), Error);
}

TEST_CASE("times are read and checked", "[chat_template]") {
  CHECK(CivilTime::parse("2024-02-29T23:59:58").second == 58);
  CHECK(CivilTime::parse("2024-02-29").hour == 0);
  for (const char* bad : {"", "2025", "2025-13-01", "2025-02-29", "2025-01-01T24:00:00", "now"}) {
    CHECK_THROWS_AS(CivilTime::parse(bad), Error);
  }
}

TEST_CASE("hostile templates are refused within the limits", "[chat_template]") {
  const auto repeat = [](const std::string& unit, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; ++i) out += unit;
    return out;
  };
  const std::string grow = "{% set ns = namespace(x=['ab'], s='ab') %}{% for i in range(99) %}";
  const std::pair<std::string, std::string> cases[] = {
      {"{{ range(10**9) }}", "range too big"},
      {repeat("{% for i in range(99999) %}", 3) + repeat("{% endfor %}", 3), "steps"},
      {grow + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "bytes"},
      {grow + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == 1 }}{{ ns.x }}", ""},
      {"{{ 'a' * 10**9 }}", "bytes"},
      {"{{ [0] * 10**9 }}", "bytes"},
      {"{{ ('a' * 10**6)|list|length }}", "bytes"},
      {"{{ ('a' * 10**6).join('a' * 10**6) }}", "bytes"},
      {"{{ ('a' * 10**6).replace('', 'a' * 10**6) }}", "bytes"},
      {"{{ '%1000000000d' % 1 }}", "bytes"},
      {"{{ '{:.999999999f}'.format(1.0) }}", "precision"},
      {"{% set s = 'a' * 10**6 %}{% for i in range(99) %}{{ s }}{% endfor %}", "bytes"},
      {"{% set s = 'é' * 10**6 %}{% for i in range(9999) %}{% set t = s[::-1] %}{% endfor %}",
       "steps"},
      {"{% set a = 'a' * 10**6 %}{% set b = 'a' * (10**6 // 2) ~ 'b' %}"
       "{% for i in range(9999) %}{{ a.find(b) }}{{ a.rfind('b' ~ b) }}{% endfor %}",
       "steps"},
      {"{{ ('a' * 10**6).strip('b' * 10**6 ~ 'a') }}{{ range(10**6) }}", "range"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested"},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested"},
      {"{{ " + repeat("(", 20000) + "1" + repeat(")", 20000) + " }}", "nested"},
      {"{{ " + repeat("not ", 20000) + "1 }}", "nested"},
      {repeat("{% if 1 %}", 20000), "nested"},
      {"{{ 1" + repeat("+1", 20000) + " }}", "chained"},
      {"{{ a" + repeat(".b", 20000) + " }}", "chained"},
      {"{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}", "nested"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}"
       "{% endfor %}{{ ns.x }}",
       "nested"},
      {"{{ ('[' * 100000)|from_json }}", "nested"},
      {"{{ dict(**dict.fromkeys(range(99999)|map('string'))) }}", "steps"},
      {std::string((1 << 20) + 1, ' '), "bytes"},
  };
  for (const auto& [source, reason] : cases) {
    INFO(source.substr(0, 100));
    const std::string actual = outcome(source, Json::object(), {});
    CHECK(actual.substr(0, 7) == "error: ");
    CHECK(actual.find(reason) != std::string::npos);
    CHECK(actual.find('\n') == std::string::npos);
  }
}
