// Reading standard input.
#pragma once

#include <string>
#include <string_view>

namespace lumen::runtime {

// Everything on standard input up to its end; "" if it is a terminal. If nothing comes for two
// seconds a note on standard error says what is being waited for. Throws Error: kIo, and
// kMalformed beyond limits::kPromptBytes.
std::string read_standard_input();

// Whether a line of JSON lines holds nothing: such lines are skipped.
bool is_blank(std::string_view line);

// Standard input, or a file, line by line, as the lines arrive.
class LineInput {
 public:
  // "-": standard input. A FIFO or device is read like a file. Throws Error(kMissing).
  explicit LineInput(const std::string& path = "-");
  ~LineInput();
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;

  // The next line without its newline, of the first also without a byte order mark; false at the
  // end. Throws as read_standard_input.
  bool next(std::string& line);

  // Whether a whole line has been read: as long as it has, output may be collected.
  bool has_line() const { return buffer_.find('\n', searched_) != std::string::npos; }
  // Whether next() can answer without waiting. Reads a block of what has come if there is no whole
  // line yet, and never waits: next() cannot be interrupted in the middle of a line. Throws as
  // next().
  bool is_ready();
  int descriptor() const { return descriptor_; }

  // What it is called in messages: "standard input" or the path.
  const std::string& place() const { return place_; }

  // Number of the last line, from 1.
  int64_t number() const { return number_; }

 private:
  void drop_taken();

  std::string place_;
  int descriptor_;
  std::string buffer_;
  size_t begin_ = 0;     // of the next line
  size_t searched_ = 0;  // before it the next line has no newline
  int64_t number_ = 0;
  bool at_end_ = false;
};

}  // namespace lumen::runtime
