// The tokens of JSON, for parse_json and for readers that need no tree. For this room only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/io/json.h"

namespace lumen::io {

// A position in a JSON text. Everything throws Error(kMalformed) with line and column if the text
// has something else there.
class JsonScanner {
 public:
  // `first_line` is what messages call the text's first line.
  explicit JsonScanner(std::string_view text, int64_t first_line = 1)
      : text_(text), first_line_(first_line) {}

  // The next character that is no white space; '\0' at the end. It is not consumed.
  char peek();
  // Consumes the next character if it is `c`.
  bool accept(char c);
  // The same of a word.
  bool accept_word(std::string_view word);
  // Consumes `c`, or fails with "expected " and `what`.
  void expect(char c, std::string_view what);
  // Fails unless nothing but white space follows.
  void expect_end();

  std::string string();
  // A number: unsigned or signed 64-bit if it is an integer in their range, else a double.
  Json number();
  // true, false or null.
  Json literal();

  size_t position() const { return pos_; }
  [[noreturn]] void fail_at(size_t position, std::string_view what) const;
  [[noreturn]] void fail_here(std::string_view what) const;

 private:
  char current() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
  void digits();
  void escape(std::string& out);
  uint32_t hex4();

  std::string_view text_;
  int64_t first_line_;
  size_t pos_ = 0;
};

}  // namespace lumen::io
