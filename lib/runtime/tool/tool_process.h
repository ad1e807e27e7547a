// Running the built tools from tests: with pipes, files, closed descriptors, or a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lumen::runtime::testing {

using Arguments = std::vector<std::string>;

// A model of random weights with a sentencepiece vocabulary and a notice that says so.
std::string random_model();

// Of a built tool.
std::string tool_path(const std::string& tool);

// How a process ended.
struct Outcome {
  int exit_code = -1;  // or −1
  int signal = 0;      // that killed it, or 0
  std::string out, err;
};

struct Streams {
  std::optional<std::string> input = "";  // absent: standard input is closed
  std::string output_file = "";           // instead of a pipe: "/dev/full"
  bool close_output = false;
  bool reader_leaves = false;  // reads one byte of the output and closes it
};

// Runs build/tools/`tool` with `arguments` to its end; kills it after 20 seconds. `environment` has
// "NAME=value" in addition to the test's own.
Outcome run_tool_process(const std::string& tool, const Arguments& arguments,
                         const Streams& streams = {},
                         const std::vector<std::string>& environment = {});

// Requires that a tool ended with this error: one line, the last, that begins with its name, and
// nothing on standard output.
void require_error(const Outcome& outcome, int exit_code, const std::string& tool = "lumen-run");

// Whether this system lends terminals (a chroot without /dev/pts does not); if not, notes that the
// current test is skipped.
bool has_terminals();

// A tool at a terminal of its own.
class TerminalProcess {
 public:
  TerminalProcess(const std::string& tool, const Arguments& arguments,
                  const std::string& term = "xterm");
  ~TerminalProcess();

  void type(const std::string& keys);
  void send(int signal);
  // Gives the terminal another size, of which the tool is told by SIGWINCH.
  void resize(int rows, int columns);
  // Closes the terminal, which gives the tool SIGHUP; only finish() may follow.
  void hang_up();
  // Waits until `text` was shown after what was waited for before; false after 20 seconds.
  bool wait_for(const std::string& text);
  // Waits for the end; kills the process after 20 seconds.
  Outcome finish();
  // Whether the terminal echoes and collects lines, as it did at first.
  bool is_in_normal_state() const;
  void set_normal_state();
  // Processor time used so far, in seconds.
  double cpu_seconds() const;

  const std::string& shown() const { return shown_; }

 private:
  bool read_some(int timeout_milliseconds);

  int terminal_ = -1;
  int keeper_ = -1;  // keeps the other side open after the process ended
  int process_ = -1;
  std::string shown_;
  size_t waited_ = 0;
};

}  // namespace lumen::runtime::testing
