// The chat at a terminal: keys, signals, and the state in which it leaves the terminal.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "lib/base/testing.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using testing::random_model;
using testing::TerminalProcess;

struct ChatTerminal : TerminalProcess {
  explicit ChatTerminal(const std::string& term = "xterm")
      : TerminalProcess("lumen-run", {"--no-history", "-n", "4", "--seed", "1"}, term) {}
};

TEST_CASE("at a terminal there is a chat, which Ctrl-D leaves with the terminal restored") {
  if (!testing::has_terminals()) return;
  for (const std::string term : {"xterm", "dumb"}) {
    CAPTURE(term);
    ChatTerminal chat(term);
    REQUIRE(chat.wait_for("> "));
    chat.type("hello\r");
    REQUIRE(chat.wait_for("> "));
    chat.type("/show messages\r");
    REQUIRE(chat.wait_for("user: hello"));
    REQUIRE(chat.wait_for("> "));
    chat.type("\x04");
    const auto outcome = chat.finish();
    REQUIRE(outcome.exit_code == 0);
    REQUIRE(chat.is_in_normal_state());
  }
}

TEST_CASE("where a prompt is shown the editor has the terminal already") {
  if (!testing::has_terminals()) return;
  ChatTerminal chat;
  for (int i = 0; i < 20; ++i) {
    REQUIRE(chat.wait_for("> "));
    REQUIRE_FALSE(chat.is_in_normal_state());
    chat.type("/help\r");
    REQUIRE(chat.wait_for("/exit"));
  }
}

TEST_CASE("Ctrl-C twice on an empty line leaves the chat with 130") {
  if (!testing::has_terminals()) return;
  for (const std::string term : {"xterm", "dumb"}) {
    CAPTURE(term);
    ChatTerminal chat(term);
    REQUIRE(chat.wait_for("> "));
    chat.type("\x03");
    REQUIRE(chat.wait_for("Ctrl-C again"));
    REQUIRE(chat.wait_for("> "));
    chat.type("\x03");
    REQUIRE(chat.finish().exit_code == 130);
    REQUIRE(chat.is_in_normal_state());
  }
}

TEST_CASE("Ctrl-C ends a paste whose end was lost") {
  if (!testing::has_terminals()) return;
  ChatTerminal chat;
  REQUIRE(chat.wait_for("> "));
  chat.type("\x1b[200~lost\r\x03");
  REQUIRE(chat.wait_for("> "));
  chat.type("/show messages\r");
  REQUIRE(chat.wait_for("no messages yet"));
  REQUIRE(chat.wait_for("> "));
  chat.type("\x04");
  REQUIRE(chat.finish().exit_code == 0);
}

TEST_CASE("editing keys, UTF-8 and pasted newlines") {
  if (!testing::has_terminals()) return;
  ChatTerminal chat;
  REQUIRE(chat.wait_for("> "));
  chat.type("wrld\x1b[D\x1b[D\x7f\x1b[Ho\x7f\x1b[Cor\x1b[F \u00e4\u20ac\r");
  REQUIRE(chat.wait_for("> "));
  chat.type("/show messages\r");
  REQUIRE(chat.wait_for("user: world \u00e4\u20ac"));
  REQUIRE(chat.wait_for("> "));
  chat.type("\x1b[200~/exit\rtwo\r\nthree\x1b[201~ end\r");
  REQUIRE(chat.wait_for("> "));
  chat.type("/show messages\r");
  REQUIRE(chat.wait_for("user: /exit\r\ntwo\r\nthree end\r\n"));
  REQUIRE(chat.wait_for("> "));  // Ctrl-D typed between two prompts would be the terminal's own
  chat.type("\x04");
  REQUIRE(chat.finish().exit_code == 0);
}

TEST_CASE("a line of more rows than the window has left is edited on") {
  if (!testing::has_terminals()) return;
  ChatTerminal chat;
  REQUIRE(chat.wait_for("> "));
  chat.type("\x1b[200~a\rb\rc\rd\re\rf\rg\x1b[201~");
  REQUIRE(chat.wait_for("g"));
  chat.resize(5, 80);
  REQUIRE(chat.wait_for("g"));  // drawn again
  chat.type("h\x1b[Di\r");
  REQUIRE(chat.wait_for("> "));
  chat.resize(24, 80);
  chat.type("/show messages\r");
  REQUIRE(chat.wait_for("user: a\r\nb\r\nc\r\nd\r\ne\r\nf\r\ngih\r\n"));
}

TEST_CASE("the chat takes pasted lines together again after Ctrl-Z") {
  if (!testing::has_terminals()) return;
  ChatTerminal chat;
  REQUIRE(chat.wait_for("> "));
  chat.type("\x1A");  // without a shell that could go on with it, the process is not stopped
  REQUIRE(chat.wait_for("\x1B[?2004l"));
  REQUIRE(chat.wait_for("\x1B[?2004h"));
  chat.type("\x1B[200~one\rtwo\x1B[201~\r");
  REQUIRE(chat.wait_for("> "));
  chat.type("/show messages\r");
  REQUIRE(chat.wait_for("user: one\r\ntwo"));
}

TEST_CASE("SIGTERM at the prompt ends the chat with the terminal restored") {
  if (!testing::has_terminals()) return;
  ChatTerminal chat;
  REQUIRE(chat.wait_for("> "));
  chat.send(SIGTERM);
  REQUIRE(chat.finish().exit_code == 143);
  REQUIRE(chat.is_in_normal_state());
}

TEST_CASE("SIGQUIT at the prompt, and its key, end the process with the terminal restored") {
  if (!testing::has_terminals()) return;
  std::signal(SIGQUIT, SIG_DFL);  // which a shell ignores for what it runs in the background
  for (const bool is_key : {false, true}) {
    CAPTURE(is_key);
    ChatTerminal chat;
    REQUIRE(chat.wait_for("> "));
    chat.type("half a line");
    REQUIRE(chat.wait_for("half a line"));
    is_key ? chat.type("\x1C") : chat.send(SIGQUIT);
    REQUIRE(chat.finish().signal == SIGQUIT);
    REQUIRE(chat.is_in_normal_state());
  }
}

TEST_CASE("a line goes on after a stop, during which others had the terminal") {
  if (!testing::has_terminals()) return;
  for (const int signal : {SIGSTOP, SIGTSTP}) {
    CAPTURE(signal);
    ChatTerminal chat;
    REQUIRE(chat.wait_for("> "));
    chat.type("one ");
    REQUIRE(chat.wait_for("one "));
    chat.send(signal);  // without a shell SIGTSTP does not stop, but is gone through
    if (signal == SIGSTOP) {
      chat.set_normal_state();
      chat.send(SIGCONT);
    }
    REQUIRE(chat.wait_for("> one "));
    REQUIRE_FALSE(chat.is_in_normal_state());
    chat.type("two\r");
    REQUIRE(chat.wait_for("> "));
    chat.type("/show messages\r");
    REQUIRE(chat.wait_for("user: one two"));
  }
}

TEST_CASE("a terminal that is closed ends the chat with 129, and the prompt cache is kept") {
  if (!testing::has_terminals()) return;
  const std::string cache = lumen::testing::temporary_directory() + "/cache";
  TerminalProcess chat("lumen-run", {"--no-history", "-n", "4", "--prompt-cache", cache});
  REQUIRE(chat.wait_for("> "));
  chat.type("hello\r");
  REQUIRE(chat.wait_for("> "));
  chat.hang_up();
  REQUIRE(chat.finish().exit_code == 129);
  REQUIRE(std::filesystem::file_size(cache) > 1000);
}

TEST_CASE("half a line of a batch holds up neither running answers nor signals") {
  if (!testing::has_terminals()) return;
  for (const auto& [signal, exit_code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    CAPTURE(signal);
    TerminalProcess batch("lumen-run", {random_model(), "--raw", "--batch", "-", "-n", "8"});
    // Ctrl-D hands over what has been typed of a line.
    batch.type("{\"prompt\": \"a\"}\r{\"prompt\":\x04");
    REQUIRE(batch.wait_for("\"stop_reason\":"));
    batch.send(signal);
    REQUIRE(batch.finish().exit_code == exit_code);
  }
}

TEST_CASE("a model file that is cut short while in use ends the chat with an I/O error") {
  if (!testing::has_terminals()) return;
  const std::string model = lumen::testing::temporary_directory() + "/model.gguf";
  std::filesystem::copy_file(random_model(), model);
  TerminalProcess chat("lumen-run", {model, "--no-history"});
  REQUIRE(chat.wait_for("> "));
  std::filesystem::resize_file(model, 0);
  chat.type("hello\r");
  REQUIRE(chat.wait_for("lumen-run: error: "));
  REQUIRE(chat.finish().exit_code == 74);
  REQUIRE(chat.is_in_normal_state());
}

TEST_CASE("Tab completes a command, and lists where there are several") {
  if (!testing::has_terminals()) return;
  ChatTerminal chat;
  REQUIRE(chat.wait_for("> "));
  chat.type("/sh\t");
  REQUIRE(chat.wait_for("ow "));  // what is new is drawn
  chat.type("m\t");               // messages or model: nothing is certain
  chat.type("\t");
  REQUIRE(chat.wait_for("messages  model"));
  REQUIRE(chat.wait_for("> /show m"));
  chat.type("e\t\r");
  REQUIRE(chat.wait_for("no messages yet"));
  REQUIRE(chat.wait_for("> "));
  chat.type("\x04");
  REQUIRE(chat.finish().exit_code == 0);
}

// With $VISUAL set to `command` until it ends.
struct Editor {
  explicit Editor(const std::string& command) { ::setenv("VISUAL", command.c_str(), 1); }
  ~Editor() { ::unsetenv("VISUAL"); }
};

TEST_CASE("/edit sends what the editor makes of the last message, Ctrl-X Ctrl-E of the line") {
  if (!testing::has_terminals()) return;
  const Editor editor("sed -i -e s/one/two/");
  ChatTerminal chat;
  REQUIRE(chat.wait_for("> "));
  chat.type("say one\r");
  REQUIRE(chat.wait_for("> "));
  chat.type("/edit\r");
  REQUIRE(chat.wait_for("> say two\r\n"));
  REQUIRE(chat.wait_for("> "));
  chat.type("again one\x18\x05");
  REQUIRE(chat.wait_for("> again two\r\n"));
  REQUIRE(chat.wait_for("> "));
  chat.type("/show messages\r");
  REQUIRE(chat.wait_for("user: say two"));
  REQUIRE(chat.wait_for("user: again two"));
  REQUIRE_FALSE(lumen::testing::contains(chat.shown(), "user: say one"));
  REQUIRE(chat.wait_for("> "));
  chat.type("/edit\r");  // sed finds nothing
  REQUIRE(chat.wait_for("nothing was sent"));
  REQUIRE(chat.wait_for("> "));
  chat.type("\x04");
  REQUIRE(chat.finish().exit_code == 0);
  REQUIRE(chat.is_in_normal_state());
}

TEST_CASE("an editor that fails, and SIGTERM and Ctrl-C while one runs") {
  if (!testing::has_terminals()) return;
  {
    const Editor editor("no-such-editor");
    ChatTerminal chat;
    REQUIRE(chat.wait_for("> "));
    chat.type("/edit\r");
    REQUIRE(chat.wait_for("error: the editor 'no-such-editor' cannot be started"));
    REQUIRE(chat.wait_for("> "));
    chat.type("\x04");
    REQUIRE(chat.finish().exit_code == 0);
  }
  const Editor editor("trap 'exit 0' INT; echo started; while :; do sleep 0.1; done; true");
  ChatTerminal chat;
  REQUIRE(chat.wait_for("> "));
  chat.type("/edit\r");
  REQUIRE(chat.wait_for("started"));
  chat.type("\x03");  // the editor's
  REQUIRE(chat.wait_for("nothing was sent"));
  REQUIRE(chat.wait_for("> "));
  chat.type("/edit\r");
  REQUIRE(chat.wait_for("started"));
  chat.send(SIGTERM);
  REQUIRE(chat.finish().exit_code == 143);
  REQUIRE(chat.is_in_normal_state());
}

TEST_CASE("an idle chat uses no processor time") {
  if (!testing::has_terminals()) return;
  ChatTerminal chat;
  REQUIRE(chat.wait_for("> "));
  chat.type("hello\r");
  REQUIRE(chat.wait_for("> "));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // workers stop spinning
  const double before = chat.cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  REQUIRE(chat.cpu_seconds() - before < 0.02);
}

}  // namespace
}  // namespace lumen::runtime
