#include "lib/text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "lib/base/strings.h"
#include "lib/text/jinja/python_text.h"

namespace lumen::text::jinja {

namespace {

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_ascii_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

class Lexer {
 public:
  Lexer(std::string_view source, const ChatTemplate::Syntax& syntax)
      : source_(normalize_newlines(source)), text_(source_), syntax_(syntax) {}

  std::vector<Token> run() {
    while (pos_ < text_.size()) data();
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::string message) const { throw SyntaxError{line_, message}; }

  bool at(std::string_view wanted) const { return text_.substr(pos_, wanted.size()) == wanted; }

  void push(TokenKind kind, std::string_view text) {
    tokens_.push_back({kind, line_, std::string(text), 0, 0});
  }

  // Consumes `count` bytes, counting lines.
  void advance(size_t count) {
    const std::string_view passed = text_.substr(pos_, count);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    pos_ += passed.size();
    if (!passed.empty()) line_starting_ = passed.back() == '\n';
  }

  void skip_space() { advance(text_.size() - pos_ - strip_left(text_.substr(pos_)).size()); }

  // Text up to the next tag, and that tag's opening.
  void data() {
    const bool line_starting = line_starting_;
    size_t open = pos_;
    while (open < text_.size()) {
      open = std::min(text_.find('{', open), text_.size());
      if (open + 1 < text_.size() &&
          (text_[open + 1] == '{' || text_[open + 1] == '%' || text_[open + 1] == '#')) {
        break;
      }
      ++open;
    }
    if (open >= text_.size()) {
      push(TokenKind::kData, text_.substr(pos_));
      pos_ = text_.size();
      return;
    }
    const char tag = text_[open + 1];
    const char sign = open + 2 < text_.size() ? text_[open + 2] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    emit_data(text_.substr(pos_, open - pos_), tag, has_sign ? sign : '\0', line_starting);
    advance(open - pos_);
    if (tag == '%' && raw_block(2 + (has_sign ? 1 : 0))) return;
    const int opened_at = line_;
    advance(has_sign ? 3 : 2);
    if (tag == '#') {
      comment(opened_at);
    } else {
      push(tag == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
      code(tag == '%');
    }
  }

  // The data before a tag, as the tag's sign and lstrip_blocks leave it.
  void emit_data(std::string_view data, char tag, char sign, bool line_starting) {
    if (sign == '-') {
      data = strip_right(data);
    } else if (sign != '+' && tag != '{' && syntax_.lstrip_blocks) {
      const size_t newline = data.rfind('\n');
      const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((begin > 0 || line_starting) && strip_left(data.substr(begin)).empty()) {
        data = data.substr(0, begin);
      }
    }
    if (!data.empty()) push(TokenKind::kData, data);
  }

  // The length of a closing "%}" at `pos` with its sign; 0 if there is none.
  size_t closing(size_t pos, std::string_view end, bool allow_plus) const {
    const bool sign =
        pos < text_.size() && (text_[pos] == '-' || (allow_plus && text_[pos] == '+'));
    const size_t length = end.size() + (sign ? 1 : 0);
    return text_.substr(pos + (sign ? 1 : 0), end.size()) == end ? length : 0;
  }

  // Consumes a closing of `length` bytes and the white space its sign or trim_blocks takes.
  void close(size_t length, bool trim) {
    const char sign = text_[pos_];
    advance(length);
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && trim && at("\n")) {
      advance(1);
    }
  }

  void comment(int opened_at) {
    const size_t end = text_.find("#}", pos_);
    if (end == std::string_view::npos) throw SyntaxError{opened_at, "missing end of comment '#}'"};
    const bool sign = end > pos_ && (text_[end - 1] == '-' || text_[end - 1] == '+');
    advance(end - pos_ - (sign ? 1 : 0));
    close(sign ? 3 : 2, syntax_.trim_blocks);
  }

  size_t space_at(size_t pos) const {
    return text_.size() - pos - strip_left(text_.substr(std::min(pos, text_.size()))).size();
  }

  // `{% word %}` at `pos` with `prefix` bytes of opening: its length without the closing, or 0.
  size_t tag_at(size_t pos, size_t prefix, std::string_view word) const {
    size_t p = pos + prefix;
    if (p > text_.size()) return 0;
    p += space_at(p);
    if (text_.substr(p, word.size()) != word) return 0;
    p += word.size();
    p += space_at(p);
    return closing(p, "%}", word == "endraw") ? p - pos : 0;
  }

  // At "{%": consumes a whole raw block if this is one.
  bool raw_block(size_t prefix) {
    const size_t opening = tag_at(pos_, prefix, "raw");
    if (opening == 0) return false;
    const int opened_at = line_;
    advance(opening);
    close(closing(pos_, "%}", false), false);
    const bool line_starting = line_starting_;
    for (size_t end = pos_;; ++end) {
      end = text_.find("{%", end);
      if (end == std::string_view::npos) {
        throw SyntaxError{opened_at, "missing end of raw block '{% endraw %}'"};
      }
      const char sign = end + 2 < text_.size() ? text_[end + 2] : '\0';
      const bool has_sign = sign == '-' || sign == '+';
      const size_t length = tag_at(end, has_sign ? 3 : 2, "endraw");
      if (length == 0) continue;
      emit_data(text_.substr(pos_, end - pos_), '%', has_sign ? sign : '\0', line_starting);
      advance(end - pos_ + length);
      close(closing(pos_, "%}", true), syntax_.trim_blocks);
      return true;
    }
  }

  // The inside of {{ }} or {% %}.
  void code(bool block) {
    std::string open;  // brackets not yet closed
    for (;;) {
      skip_space();
      if (pos_ >= text_.size()) return;  // the parser says what is missing
      const size_t end = closing(pos_, block ? "%}" : "}}", block);
      if (end > 0 && open.empty()) {
        push(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
        close(end, block && syntax_.trim_blocks);
        return;
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = text_[pos_];
    if (is_digit(c)) return number();
    if (const size_t end = name_end(pos_); end > pos_) {
      push(TokenKind::kName, text_.substr(pos_, end - pos_));
      return advance(end - pos_);
    }
    if (c == '\'' || c == '"') return string(c);
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    for (std::string_view symbol : kTwo) {
      if (at(symbol)) {
        push(TokenKind::kOperator, symbol);
        return advance(2);
      }
    }
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      error("unexpected character " +
            lumen::quoted(text_.substr(pos_, offset_of(text_.substr(pos_), 1))));
    }
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) error(str("unexpected '", c, "'"));
      if (open.back() != c) error(str("unexpected '", c, "', expected '", open.back(), "'"));
      open.pop_back();
    }
    push(TokenKind::kOperator, text_.substr(pos_, 1));
    advance(1);
  }

  size_t name_end(size_t pos) const {
    while (pos < text_.size()) {
      size_t next = pos;
      const uint32_t c = next_code_point(text_, next);
      if (c < 0x80 ? !is_ascii_name(static_cast<char>(c))
                   : !is_alphabetic(c) && !has_property(kProperties.numeric, c)) {
        break;
      }
      pos = next;
    }
    return pos;
  }

  // The end of digits of `base` from `pos`, single underscores between them allowed.
  size_t digits(size_t pos, int base) const {
    while (pos < text_.size() &&
           (digit_value(text_[pos]) < base ||
            (text_[pos] == '_' && pos + 1 < text_.size() && digit_value(text_[pos + 1]) < base))) {
      ++pos;
    }
    return pos;
  }

  static std::string without_underscores(std::string_view text) {
    std::string out(text);
    std::erase(out, '_');
    return out;
  }

  void number() {
    const size_t whole = digits(pos_, 10);
    size_t end = whole;
    if (pos_ == 0 || text_[pos_ - 1] != '.') {
      if (end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) {
        end = digits(end + 1, 10);
      }
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) {
          ++exponent;
        }
        if (exponent < text_.size() && is_digit(text_[exponent])) end = digits(exponent, 10);
      }
    }
    if (end > whole) return real(end);
    integer();
  }

  void real(size_t end) {
    const std::string text = without_underscores(text_.substr(pos_, end - pos_));
    push(TokenKind::kFloat, text);
    double value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    // Out of range: from_chars does not say which way; Python gives inf or 0.
    if (result.ec == std::errc::result_out_of_range) {
      const size_t exponent = text.find_first_of("eE");
      value = exponent != std::string::npos && text[exponent + 1] == '-'
                  ? 0.0
                  : std::numeric_limits<double>::infinity();
    }
    tokens_.back().real = value;
    advance(end - pos_);
  }

  void integer() {
    int base = 10;
    size_t begin = pos_;
    if (text_[pos_] == '0' && pos_ + 1 < text_.size()) {
      const char marker = static_cast<char>(text_[pos_ + 1] | 0x20);
      const int marked = marker == 'x' ? 16 : marker == 'o' ? 8 : marker == 'b' ? 2 : 10;
      const size_t first = pos_ + 2 + (text_.substr(pos_ + 2, 1) == "_" ? 1 : 0);
      if (marked != 10 && first < text_.size() && digit_value(text_[first]) < marked) {
        base = marked;
        begin = first;
      }
    }
    size_t end = digits(begin, base);
    if (base == 10 && text_[pos_] == '0') {  // "0", "00", "0_0"; never "01"
      end = pos_ + 1;
      while (end < text_.size() &&
             (text_[end] == '0' || (text_[end] == '_' && text_.substr(end + 1, 1) == "0"))) {
        ++end;
      }
    }
    const std::string text = without_underscores(text_.substr(begin, end - begin));
    int64_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (result.ec != std::errc())
      error("the integer " + lumen::quoted(text) + " does not fit 64 bits");
    push(TokenKind::kInteger, text);
    tokens_.back().integer = value;
    advance(end - pos_);
  }

  void string(char quote) {
    size_t end = pos_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) error("a string is not closed");
    push(TokenKind::kString, unescape(text_.substr(pos_ + 1, end - pos_ - 1)));
    advance(end + 1 - pos_);
  }

  uint32_t hex(std::string_view text, size_t pos, size_t count) const {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) {
      const int digit = pos + i < text.size() ? digit_value(text[pos + i]) : 99;
      if (digit > 15) error("truncated \\x, \\u or \\U escape in a string");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      error("an escape in a string is not a Unicode character");
    }
    return value;
  }

  // Python's escapes; unknown ones stay as they are.
  std::string unescape(std::string_view text) const {
    static constexpr std::string_view kNames = "\\'\"abfnrtv";
    static constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      if (const size_t known = kNames.find(c); known != std::string_view::npos) {
        out += kValues[known];
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_utf8(out, hex(text, i + 1, count));
        i += count;
      } else if (c >= '0' && c <= '7') {
        uint32_t value = 0;
        size_t used = 0;
        while (used < 3 && i + used < text.size() && digit_value(text[i + used]) < 8) {
          value = value * 8 + static_cast<uint32_t>(digit_value(text[i + used++]));
        }
        append_utf8(out, value);
        i += used - 1;
      } else if (c == 'N') {
        error("character names (\\N{…}) in strings are not supported");
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  const std::string source_;
  const std::string_view text_;
  const ChatTemplate::Syntax& syntax_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last consumed piece ended with a line end
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const ChatTemplate::Syntax& syntax) {
  return Lexer(source, syntax).run();
}

}  // namespace lumen::text::jinja
