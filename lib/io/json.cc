#include "lib/io/json.h"

#include <charconv>
#include <cmath>
#include <vector>

#include "lib/base/error.h"
#include "lib/io/mapped_file.h"
#include "lib/io/name_index.h"

namespace lumen::io {
namespace {

// An iterative parser: open arrays and objects are kept on a stack of our own, never on the
// machine's, so nesting costs nothing but its limit.
class JsonParser {
 public:
  JsonParser(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  Json parse() {
    if (text_.size() > limits_.bytes) {
      fail(ErrorKind::kMalformed, "JSON of ", text_.size(), " bytes; the limit is ", limits_.bytes);
    }
    Json root;
    value(root);
    while (!open_.empty()) next_member();
    skip_space();
    if (pos_ < text_.size()) fail_here("something follows the end of the JSON value");
    return root;
  }

 private:
  struct Container {
    Json* json;
    size_t pos;  // of its opening bracket
  };

  [[noreturn]] void fail_at(size_t pos, const std::string& what) const {
    size_t line = 1, column = 1;
    for (const char c : text_.substr(0, pos)) {
      if (c == '\n') {
        ++line;
        column = 1;
      } else if ((c & 0xC0) != 0x80) {
        ++column;
      }
    }
    fail(ErrorKind::kMalformed, "line ", line, ", column ", column, ": ", what);
  }

  [[noreturn]] void fail_here(const std::string& what) const {
    if (pos_ >= text_.size()) fail_at(text_.size(), "the JSON ends too early (truncated file?)");
    fail_at(pos_, str(what, ", at ", quoted(text_.substr(pos_, 12), 20)));
  }

  char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }

  void skip_space() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\n' ||
                                   text_[pos_] == '\t' || text_[pos_] == '\r')) {
      ++pos_;
    }
  }

  void expect(char c, const char* what) {
    skip_space();
    if (peek() != c) fail_here(what);
    ++pos_;
  }

  // Reads a value into `out`; an array or object is only opened.
  void value(Json& out) {
    skip_space();
    switch (peek()) {
      case '{':
        return open(out, Json::object());
      case '[':
        return open(out, Json::array());
      case '"':
        out = string();
        return;
      case 't':
        return literal("true", out, true);
      case 'f':
        return literal("false", out, false);
      case 'n':
        return literal("null", out, nullptr);
      default:
        out = number();
    }
  }

  void open(Json& out, Json empty) {
    if (open_.size() >= static_cast<size_t>(limits_.depth)) {
      fail_at(pos_, str("arrays and objects nested deeper than ", limits_.depth));
    }
    out = std::move(empty);
    open_.push_back({&out, pos_++});
    skip_space();
    if (peek() == (out.is_object() ? '}' : ']')) {
      ++pos_;
      open_.pop_back();
    }
  }

  // Reads the next member of the innermost container, which has one, and closes what ends after it.
  void next_member() {
    Json& container = *open_.back().json;
    const size_t depth = open_.size();
    if (container.is_object()) {
      skip_space();
      if (peek() != '"') fail_here("expected a key in double quotes");
      std::string key = string();
      expect(':', "expected ':' after a key");
      // The vector's emplace_back, because ordered_map's own emplace searches all keys.
      auto& members = container.get_ref<Json::object_t&>();
      members.emplace_back(std::move(key), nullptr);
      value(members.back().second);
    } else {
      auto& elements = container.get_ref<Json::array_t&>();
      elements.emplace_back();
      value(elements.back());
    }
    if (open_.size() > depth) return;  // its first member comes next
    close_finished();
  }

  // After a complete value: a comma, or the end of one or more containers.
  void close_finished() {
    while (!open_.empty()) {
      const bool is_object = open_.back().json->is_object();
      skip_space();
      if (peek() == ',') {
        ++pos_;
        return;
      }
      if (peek() != (is_object ? '}' : ']')) {
        fail_here(is_object ? "expected ',' or '}'" : "expected ',' or ']'");
      }
      ++pos_;
      if (is_object) check_keys(open_.back());
      open_.pop_back();
    }
  }

  void check_keys(const Container& container) const {
    const auto& members = container.json->get_ref<const Json::object_t&>();
    if (members.size() < 2) return;
    NameIndex index(members.size());
    const auto name_of = [&](uint32_t i) -> std::string_view {
      return (members.begin() + i)->first;
    };
    for (uint32_t i = 0; i < members.size(); ++i) {
      if (index.insert(name_of(i), i, name_of) != NameIndex::kNone) {
        fail_at(container.pos,
                str("the object that begins here has the key ", quoted(name_of(i)), " twice"));
      }
    }
  }

  template <typename T>
  void literal(std::string_view word, Json& out, T constant) {
    if (text_.substr(pos_, word.size()) != word) fail_here("expected a JSON value");
    pos_ += word.size();
    out = constant;
  }

  Json number() {
    const size_t begin = pos_;
    bool integer = true;
    if (peek() == '-') ++pos_;
    if (peek() == '0') {
      ++pos_;
    } else {
      digits();
    }
    if (peek() == '.') {
      integer = false;
      ++pos_;
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      integer = false;
      ++pos_;
      if (peek() == '+' || peek() == '-') ++pos_;
      digits();
    }
    const char* first = text_.data() + begin;
    const char* last = text_.data() + pos_;
    uint64_t natural = 0;
    int64_t signed_value = 0;
    double real = 0;
    if (integer && *first != '-' && std::from_chars(first, last, natural).ec == std::errc()) {
      return natural;
    }
    if (integer && *first == '-' && std::from_chars(first, last, signed_value).ec == std::errc()) {
      return signed_value;
    }
    const auto result = std::from_chars(first, last, real);
    // Too small for a double is zero; too large is no number.
    if (result.ec == std::errc::result_out_of_range && is_tiny(text_.substr(begin, pos_ - begin))) {
      return 0.0;
    }
    if (result.ec != std::errc()) fail_at(begin, "a number too large for a double");
    return real;
  }

  // Whether an out-of-range number is so by a negative exponent.
  static bool is_tiny(std::string_view number) {
    const size_t e = number.find_first_of("eE");
    return e != std::string_view::npos ? number.substr(e + 1).starts_with('-')
                                       : number.find('.') != std::string_view::npos;
  }

  void digits() {
    const size_t begin = pos_;
    while (peek() >= '0' && peek() <= '9') ++pos_;
    if (pos_ == begin) fail_here("expected a JSON value");
  }

  std::string string() {
    const size_t begin = pos_++;
    std::string out;
    for (;;) {
      const size_t chunk = pos_;
      while (pos_ < text_.size() && text_[pos_] != '"' && text_[pos_] != '\\' &&
             static_cast<unsigned char>(text_[pos_]) >= 0x20) {
        ++pos_;
      }
      out.append(text_.substr(chunk, pos_ - chunk));
      if (peek() == '"') break;
      if (peek() != '\\') fail_here("a control character in a string");
      ++pos_;
      escape(out);
    }
    ++pos_;
    if (!is_valid_utf8(out)) fail_at(begin, "a string that is not valid UTF-8");
    return out;
  }

  void escape(std::string& out) {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const size_t at = kLetters.find(peek());
    if (peek() != '\0' && at != std::string_view::npos) {
      out += kMeanings[at];
      ++pos_;
      return;
    }
    if (peek() != 'u') fail_here("an unknown escape sequence in a string");
    const size_t begin = pos_++;
    uint32_t code_point = hex4();
    if (code_point >= 0xD800 && code_point < 0xDC00 && text_.substr(pos_, 2) == "\\u") {
      pos_ += 2;
      const uint32_t low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail_at(begin, "an unpaired surrogate in a string");
      code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code_point >= 0xD800 && code_point < 0xE000) {
      fail_at(begin, "an unpaired surrogate in a string");
    }
    append_utf8(out, code_point);
  }

  uint32_t hex4() {
    uint32_t value = 0;
    const std::string_view word = text_.substr(pos_, 4);
    const auto result = std::from_chars(word.data(), word.data() + word.size(), value, 16);
    if (word.size() != 4 || result.ptr != word.data() + 4 || word[0] == '-') {
      fail_here("expected four hexadecimal digits");
    }
    pos_ += 4;
    return value;
  }

  std::string_view text_;
  const JsonLimits& limits_;
  size_t pos_ = 0;
  std::vector<Container> open_;
};

[[noreturn]] void fail_member(const Json* found, std::string_view key,
                              const std::string& expected) {
  fail(ErrorKind::kMalformed, "key ", quoted(key), ": found ", describe(found), ", expected ",
       expected);
}

// Exactly representable bounds of int64 as double.
constexpr double kInt64End = 9223372036854775808.0;

bool as_int(const Json& value, int64_t& out) {
  if (value.is_number_unsigned()) {
    const auto natural = value.get<uint64_t>();
    if (natural > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    out = static_cast<int64_t>(natural);
    return true;
  }
  if (value.is_number_integer()) {
    out = value.get<int64_t>();
    return true;
  }
  if (!value.is_number_float()) return false;
  const double real = value.get<double>();
  if (std::trunc(real) != real || real < -kInt64End || real >= kInt64End) return false;
  out = static_cast<int64_t>(real);
  return true;
}

int64_t checked_int(const Json* value, std::string_view key, int64_t lo, int64_t hi) {
  int64_t number = 0;
  if (value == nullptr || !as_int(*value, number) || number < lo || number > hi) {
    fail_member(value, key, str("an integer from ", lo, " to ", hi));
  }
  return number;
}

double checked_number(const Json* value, std::string_view key, double lo, double hi) {
  if (value == nullptr || !value->is_number() || !(value->get<double>() >= lo) ||
      !(value->get<double>() <= hi)) {
    fail_member(value, key, str("a number from ", lo, " to ", hi));
  }
  return value->get<double>();
}

bool checked_bool(const Json* value, std::string_view key) {
  if (value == nullptr || !value->is_boolean()) fail_member(value, key, "true or false");
  return value->get<bool>();
}

std::string checked_string(const Json* value, std::string_view key) {
  if (value == nullptr || !value->is_string()) fail_member(value, key, "a string");
  return value->get<std::string>();
}

}  // namespace

Json parse_json(std::string_view text, const std::string& place, const JsonLimits& limits) {
  return with_context(place_of(place), [&] { return JsonParser(text, limits).parse(); });
}

Json read_json(const std::string& path, const JsonLimits& limits) {
  const std::string content = read_file(path, limits.bytes);
  std::string_view text = content;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::string hint = content_hint(std::as_bytes(std::span(text)));
  if (text.empty() || !hint.empty()) {
    fail(ErrorKind::kMalformed, place_of(path), ": ",
         hint.empty() ? "the file is empty (an interrupted download?)" : hint);
  }
  return parse_json(text, path, limits);
}

const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  for (const auto& member : object.get_ref<const Json::object_t&>()) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

const Json* find_value(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  return value != nullptr && value->is_null() ? nullptr : value;
}

int64_t get_int(const Json& object, std::string_view key, int64_t lo, int64_t hi) {
  return checked_int(find_value(object, key), key, lo, hi);
}
int64_t get_int(const Json& object, std::string_view key, int64_t lo, int64_t hi,
                int64_t fallback) {
  const Json* value = find_value(object, key);
  return value == nullptr ? fallback : checked_int(value, key, lo, hi);
}

double get_number(const Json& object, std::string_view key, double lo, double hi) {
  return checked_number(find_value(object, key), key, lo, hi);
}
double get_number(const Json& object, std::string_view key, double lo, double hi, double fallback) {
  const Json* value = find_value(object, key);
  return value == nullptr ? fallback : checked_number(value, key, lo, hi);
}

bool get_bool(const Json& object, std::string_view key) {
  return checked_bool(find_value(object, key), key);
}
bool get_bool(const Json& object, std::string_view key, bool fallback) {
  const Json* value = find_value(object, key);
  return value == nullptr ? fallback : checked_bool(value, key);
}

std::string get_string(const Json& object, std::string_view key) {
  return checked_string(find_value(object, key), key);
}
std::string get_string(const Json& object, std::string_view key, std::string_view fallback) {
  const Json* value = find_value(object, key);
  return value == nullptr ? std::string(fallback) : checked_string(value, key);
}

std::string describe(const Json* value) {
  if (value == nullptr) return "nothing";
  if (value->is_string())
    return str("the string ", quoted(value->get_ref<const std::string&>(), 40));
  if (value->is_number_unsigned()) return str("the number ", value->get<uint64_t>());
  if (value->is_number_integer()) return str("the number ", value->get<int64_t>());
  if (value->is_number_float()) return str("the number ", value->get<double>());
  if (value->is_boolean()) return value->get<bool>() ? "true" : "false";
  if (value->is_array()) return str("an array of ", value->size());
  if (value->is_object()) return "an object";
  return "null";
}

}  // namespace lumen::io
