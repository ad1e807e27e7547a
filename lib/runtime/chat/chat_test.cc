#include "lib/runtime/chat/chat.h"

#include <csignal>
#include <cstdlib>
#include <deque>
#include <fstream>

#include "lib/base/testing.h"
#include "lib/runtime/generation/fake_model.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::fake_session;
using Event = LineReader::Event;

// Types prepared lines; after the last one, Ctrl-D.
class ScriptedReader : public LineReader {
 public:
  explicit ScriptedReader(std::deque<Line> lines) : lines_(std::move(lines)) {}

  Line read(const std::string& prompt) override {
    prompts.push_back(prompt);
    if (lines_.empty()) return {Event::kEnd, ""};
    Line line = lines_.front();
    lines_.pop_front();
    return line;
  }
  void remember(const std::string& entry) override { remembered.push_back(entry); }
  void complete_with(Completer completer) override {
    if (!completer) return;
    for (const std::string& line : to_complete) completed.push_back(completer(line));
  }

  std::vector<std::string> prompts, remembered, to_complete;
  std::vector<Completion> completed;

 private:
  std::deque<Line> lines_;
};

struct Chatted {
  std::string output;
  int exit_code = -1;
  std::vector<std::string> prompts, remembered;
};

Chatted chat(std::deque<LineReader::Line> lines, std::vector<std::string> scripts = {"answer"},
             RunOptions options = {}, int64_t context = 1000) {
  Session session = fake_session(context, std::move(scripts));
  ScriptedReader reader(std::move(lines));
  SignalWatch signals;
  Chatted result;
  Chat chat(session, options, reader, signals,
            [&](std::string_view text) { result.output += text; });
  result.exit_code = chat.run();
  result.prompts = reader.prompts;
  result.remembered = reader.remembered;
  return result;
}

LineReader::Line line(std::string text) {
  return {Event::kLine, std::move(text)};
}
LineReader::Line interrupt(std::string typed = "") {
  return {Event::kInterrupt, std::move(typed)};
}

TEST_CASE("a message is answered, Ctrl-D leaves with 0") {
  const auto result = chat({line("hi")});
  REQUIRE(contains(result.output, "answer\n"));
  REQUIRE(result.exit_code == 0);
}

TEST_CASE("a backslash and a block make one message of several lines") {
  auto result = chat({line("one\\"), line("two"), line("/show messages")});
  REQUIRE(contains(result.output, "user: one\ntwo\n"));
  REQUIRE(result.prompts[1] != result.prompts[0]);

  result =
      chat({line("\"\"\""), line("/exit"), line("\\"), line("b\"\"\""), line("/show messages")});
  REQUIRE(contains(result.output, "user: /exit\n\\\nb\n"));
  result = chat({line("\"\"\"one line\"\"\""), line("/show messages")});
  REQUIRE(contains(result.output, "user: one line\n"));
}

TEST_CASE("pasted newlines are part of the message, even after a slash") {
  const auto result = chat({line("/exit\nsecond"), line("/show messages")});
  REQUIRE(contains(result.output, "user: /exit\nsecond\n"));
}

TEST_CASE("Ctrl-C clears a line, hints on an empty one, and leaves with 130 the second time") {
  REQUIRE(chat({interrupt("typed"), interrupt("more")}).exit_code == 0);  // ended by Ctrl-D
  auto result = chat({interrupt(), interrupt()});
  REQUIRE(contains(result.output, "Ctrl-C again"));
  REQUIRE(result.exit_code == 130);
  REQUIRE(chat({interrupt(), line("hi"), interrupt()}).exit_code == 0);
  REQUIRE(chat({interrupt(), interrupt("x"), interrupt()}).exit_code == 0);
  REQUIRE(chat({line("block\\"), interrupt(), line("/show messages")}).exit_code == 0);
}

TEST_CASE("Ctrl-C during an answer keeps what came, and leaves the second time") {
  Session session = fake_session(1000, {"a long answer"});
  ScriptedReader reader({line("hi"), line("/show messages"), line("hi"), interrupt()});
  SignalWatch signals;
  std::string output;
  Chat chat(session, {}, reader, signals, [&](std::string_view text) {
    output += text;
    if (text == "l") std::raise(SIGINT);
  });
  REQUIRE(chat.run() == 130);
  REQUIRE(contains(output, "assistant: a l\n"));
}

TEST_CASE("SIGTERM during an answer ends the chat") {
  Session session = fake_session(1000, {"a long answer"});
  ScriptedReader reader({line("hi")});
  SignalWatch signals;
  Chat chat(session, {}, reader, signals, [&](std::string_view text) {
    if (text == "l") std::raise(SIGTERM);
  });
  REQUIRE(chat.run() == 143);
}

TEST_CASE("commands are matched exactly, typos get a hint") {
  auto result = chat({line("/exitfoo"), line("/retyr"), line("/exit now")});
  REQUIRE(contains(result.output, "did you mean /retry?"));
  for (const auto& [theirs, ours] : {std::pair("/clear", "/reset"), {"/bye", "/exit"}}) {
    CHECK(contains(chat({line(theirs)}).output, str("did you mean ", ours, "?")));
  }
  REQUIRE(contains(result.output, "'/exitfoo'"));
  REQUIRE(contains(result.output, "/exit takes no argument"));
  REQUIRE(chat({line("/exit"), interrupt(), interrupt()}).exit_code == 0);
  result = chat({line("/help")});
  CHECK(contains(result.output, "\n  /load FILE          go on"));
  CHECK(contains(result.output, "\n  /read FILE…         put the text"));
  for (const char* command : {"/help", "/exit", "/reset", "/set", "/show", "/retry", "/undo",
                              "/save", "/load", "/read"}) {
    REQUIRE(contains(result.output, command));
  }
}

TEST_CASE("retry, undo, reset") {
  auto result = chat({line("hi"), line("/retry"), line("/show messages")}, {"first", "second"});
  REQUIRE(contains(result.output, "user: hi\nassistant: second\n"));
  result = chat({line("hi"), line("/undo"), line("/show messages"), line("/undo")});
  REQUIRE(contains(result.output, "no messages yet"));
  REQUIRE(contains(result.output, "nothing to take back"));
  RunOptions options;
  options.system = "sys";
  result = chat({line("hi"), line("/reset"), line("/show messages")}, {"x"}, options);
  REQUIRE(contains(result.output, "system: sys\n"));
  REQUIRE_FALSE(contains(result.output, "user: hi"));
}

TEST_CASE("settings can be changed and are checked") {
  const auto result =
      chat({line("/set temp 0.5"), line("/set temp hot"), line("/set tmep 1"), line("/set top-k"),
            line("/set system be brief"), line("/show params"), line("/show messages")});
  REQUIRE(contains(result.output, "temp 0.5,"));
  REQUIRE(contains(result.output, "'hot' is not a number"));
  REQUIRE(contains(result.output, "did you mean temp?"));
  REQUIRE(contains(result.output, "/set top-k needs a value"));
  REQUIRE(contains(result.output, "system: be brief\n"));
}

TEST_CASE("rare settings can be changed too, and a wrong one leaves all as they were") {
  std::deque<LineReader::Line> lines = {line("/set presence-penalty 0.5"),
                                        line("/set logit-bias a=-inf"),
                                        line("/set logit-bias ab=1"),
                                        line("/set dry-multiplier 0.8"),
                                        line("/show params"),
                                        line("hi"),
                                        line("/show messages")};
  auto result = chat(lines);
  REQUIRE(contains(result.output,
                   "presence-penalty 0.5, dry-multiplier 0.8, dry-base 1.75, dry-allowed-length 2, "
                   "dry-penalty-last-n 1000, logit-bias for 1 token, seed"));
  REQUIRE(contains(result.output, "error: logit-bias: 'ab' is 2 tokens (97, 98)"));
  REQUIRE_FALSE(contains(result.output, "assistant: answer\n"));
  lines.push_front(line("/set logit-bias a=0"));
  lines.erase(lines.begin() + 2);
  result = chat(lines);
  REQUIRE(contains(result.output, "assistant: answer\n"));
}

TEST_CASE("the prompt that is shown ends as the conversation does") {
  RunOptions options;
  options.system = "sys";
  const auto result =
      chat({line("/show prompt"), line("hi"), line("/show prompt")}, {"answer"}, options);
  REQUIRE(contains(result.output, "<s>system:sys<turn>assistant:\n"));
  REQUIRE(contains(result.output, "<s>system:sys<turn>user:hi<turn>assistant:answer<turn>\n"));
}

TEST_CASE("save, load and read") {
  const std::string directory = lumen::testing::temporary_directory();
  const std::string saved = directory + "/chat.jsonl", file = directory + "/a b.txt";
  std::ofstream(file) << "file text\n";
  auto result = chat({line("hi"), line("/save " + saved), line("/reset"), line("/load " + saved),
                      line("/show messages"), line("/load " + directory + "/none"), line("/save")});
  REQUIRE(contains(result.output, "user: hi\nassistant: answer\n"));
  REQUIRE(contains(result.output, "error: "));
  result =
      chat({line("/read " + file), line("what is it?"), line("again"), line("/show messages")});
  REQUIRE(contains(result.output, "user: file text\nwhat is it?\n"));
  REQUIRE(contains(result.output, "user: again\n"));

  // Names as a shell takes them.
  for (const std::string& name : {"'" + file + "'", '"' + file + '"', directory + "/a\\ b.txt"}) {
    CAPTURE(name);
    CHECK(contains(chat({line("/read " + name + " " + name)}).output, "(20 bytes, "));
  }
  const char* home = std::getenv("HOME");
  const std::string old_home = home == nullptr ? "" : home;
  ::setenv("HOME", directory.c_str(), 1);
  CHECK(contains(chat({line("/read ~/a\\ b.txt")}).output, "(10 bytes, "));
  CHECK(contains(chat({line("/load ~/chat.jsonl")}).output, "(2 messages read"));
  CHECK(contains(chat({line("hi"), line("/save ~/it's new.jsonl")}).output, "(2 messages written"));
  CHECK(std::ifstream(directory + "/it's new.jsonl").good());
  home == nullptr ? ::unsetenv("HOME") : ::setenv("HOME", old_home.c_str(), 1);

  // Only what /save wrote is replaced by it.
  result = chat({line("/save " + file), line("hi"), line("/save " + saved)});
  REQUIRE(contains(result.output, "is there and is not a saved conversation"));
  REQUIRE(contains(result.output, "(2 messages written"));
  std::string kept;
  std::getline(std::ifstream(file), kept);
  REQUIRE(kept == "file text");
}

TEST_CASE("stop texts and biases are taken back by /set with their name alone") {
  const auto result =
      chat({line("/set stop w"), line("/set logit-bias 122=-inf"), line("hi"), line("/set stop"),
            line("/set logit-bias"), line("/retry"), line("/show params"), line("/set temp")});
  CHECK(contains(result.output, "ans\n"));
  CHECK(contains(result.output, "answer\n"));
  CHECK_FALSE(contains(result.output, "stop: '"));
  CHECK_FALSE(contains(result.output, "logit-bias: '"));
  CHECK(contains(result.output, "error: /set temp needs a value"));
}

TEST_CASE("an empty file is not read, and one message is not several") {
  const std::string directory = lumen::testing::temporary_directory();
  std::ofstream(directory + "/empty").close();
  std::ofstream(directory + "/one") << R"({"role": "user", "content": "a"})"
                                    << "\n";
  const auto result =
      chat({line("/read " + directory + "/empty"), line("/load " + directory + "/one")});
  CHECK(contains(result.output, "/empty' is empty: nothing was read"));
  CHECK(contains(result.output, "(1 message read from"));
}

TEST_CASE("a text that does not fit is not read, and one that was can be taken back") {
  const std::string directory = lumen::testing::temporary_directory();
  std::ofstream(directory + "/large.txt") << std::string(400, 'x');
  std::ofstream(directory + "/fair.txt") << std::string(100, 'y');
  const auto result =
      chat({line("/read " + directory + "/large.txt"), line("hi"),
            line("/read " + directory + "/fair.txt"), line("/read " + directory + "/fair.txt"),
            line("/undo"), line("there"), line("/show messages")},
           {"answer"}, {}, 150);
  REQUIRE(contains(result.output, "the context only 150: nothing was read"));
  REQUIRE(contains(result.output, "read already"));
  REQUIRE(contains(result.output, "(the text that was read is taken back)"));
  REQUIRE(contains(result.output, "user: there\nassistant: answer\n"));
}

TEST_CASE("what the model says cannot control the terminal") {
  const auto result = chat({line("hi")}, {"a\x1b[2Jb\rc\u0085\u202Ed\xFF"});
  REQUIRE(contains(result.output, "a[2Jbc\u202Ed\uFFFD\n"));
}

TEST_CASE("dropped turns are announced; a message that is too long is refused") {
  const auto result = chat({line(std::string(30, 'a')), line(std::string(30, 'b')),
                            line(std::string(30, 'c')), line(std::string(400, 'd')), line("ok")},
                           {"answer"}, {}, 150);
  REQUIRE(contains(result.output, "dropped"));
  REQUIRE(contains(result.output, "error: the prompt has"));
  REQUIRE(result.exit_code == 0);
}

TEST_CASE("lines are remembered as typed") {
  const auto result = chat({line("one\\"), line("two"), line("/help")});
  REQUIRE(result.remembered == std::vector<std::string>{"one\\", "two", "/help"});
}

TEST_CASE("a chat leaves its prompt cache and goes on from it") {
  RunOptions options;
  options.prompt_cache = lumen::testing::temporary_directory() + "/chat.kv";
  REQUIRE_FALSE(contains(chat({line("hi")}, {"answer"}, options).output, "prompt cache"));
  const Chatted again = chat({line("hi"), line("/show stats")}, {"answer"}, options);
  REQUIRE_FALSE(contains(again.output, "prompt cache"));
  REQUIRE_FALSE(contains(again.output, "(0 cached)"));
  std::ofstream(*options.prompt_cache) << "damaged";
  const Chatted damaged = chat({line("hi"), line("/show stats")}, {"answer"}, options);
  REQUIRE(contains(damaged.output, "(the prompt cache is not used: "));
  REQUIRE(contains(damaged.output, "(0 cached)"));
  REQUIRE(damaged.exit_code == 0);
}

TEST_CASE("Tab completes commands, settings, topics and names of files") {
  Session session = fake_session(1000, {"answer"});
  ScriptedReader reader({});
  const std::string file = lumen::testing::source_path("CHANGELOG.md");
  reader.to_complete = {
      "/re",      "/set te",      "/show st", "/read " + file.substr(0, file.size() - 4),
      "/exit no", "say /re",      "/retry ",  "/set temp 0",
      "/edi",     "/sho\nanother"};
  SignalWatch signals;
  Chat chat(session, {}, reader, signals, [](std::string_view) {});
  chat.run();
  using Words = std::vector<std::string>;
  REQUIRE(reader.completed[0].words == Words{"/read ", "/reset ", "/retry "});
  REQUIRE(reader.completed[1].words == Words{"temp "});
  REQUIRE(reader.completed[1].begin == 5);
  REQUIRE(reader.completed[2].words == Words{"stats "});
  REQUIRE(reader.completed[3].words == Words{file + " "});
  for (const size_t none : {4, 5, 6, 7, 9}) CHECK(reader.completed[none].words.empty());
  REQUIRE(reader.completed[8].words == Words{"/edit "});
}

TEST_CASE("thoughts are faint where the terminal can show it, and stay part of the message") {
  const std::string script = "<think>hm</think>\n\nYes.";
  for (const bool dims : {true, false}) {
    CAPTURE(dims);
    Session session = fake_session(1000, {script});
    ScriptedReader reader({line("hi"), line("/show messages")});
    SignalWatch signals;
    std::string output;
    Chat chat(
        session, {}, reader, signals, [&](std::string_view text) { output += text; }, dims);
    chat.run();
    REQUIRE(contains(output, "assistant: " + script));
    REQUIRE(contains(output, "\x1b[2mh\x1b[22m\x1b[2mm\x1b[22m") == dims);
    REQUIRE(contains(output, "\x1b[2m>\x1b[22m\n\nYes.\n") == dims);
    REQUIRE(contains(output, "\x1b") == dims);
  }
}

TEST_CASE("/edit without an editor or without a terminal is refused, and the chat goes on") {
  ::unsetenv("VISUAL");
  ::unsetenv("EDITOR");
  auto result = chat({line("hi"), line("/edit"), line("/show messages")});
  REQUIRE(contains(result.output, "set the environment variable VISUAL or EDITOR"));
  REQUIRE(contains(result.output, "user: hi\nassistant: answer\n"));
  ::setenv("VISUAL", "true", 1);
  result = chat({{Event::kEdit, "typed"}, line("/edit"), line("hi")});
  ::unsetenv("VISUAL");
  REQUIRE(contains(result.output, "error: an editor needs a terminal\nerror: an editor needs"));
  REQUIRE(contains(result.output, "answer\n"));
}

}  // namespace
}  // namespace lumen::runtime
