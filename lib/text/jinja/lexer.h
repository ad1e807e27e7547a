// Source text to tokens, with jinja2's whitespace control.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/chat_template.h"

namespace lumen::text::jinja {

enum class TokenKind : uint8_t {
  kData,           // literal text
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,  // of the template
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 0;
  std::string text;     // data, name, value of a string, or the operator's characters
  int64_t integer = 0;  // value of an integer
  double real = 0;      // value of a float

  bool is(TokenKind k) const { return kind == k; }
  bool is_operator(std::string_view symbol) const {
    return kind == TokenKind::kOperator && text == symbol;
  }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

// A place in a template and what is wrong there.
struct SyntaxError {
  int line;
  std::string message;
};

// The tokens of `source` (valid UTF-8), ending with kEnd. Comments are gone, raw blocks are data,
// line ends are "\n", and one line end at the end of the source is dropped. Throws SyntaxError.
std::vector<Token> tokenize(std::string_view source, const ChatTemplate::Syntax& syntax);

}  // namespace lumen::text::jinja
