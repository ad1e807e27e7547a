#include "lib/io/json.h"

#include <cmath>
#include <vector>

#include "lib/base/error.h"
#include "lib/io/json_scanner.h"
#include "lib/io/mapped_file.h"
#include "lib/io/name_index.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace lumen::io {
namespace {

constexpr const char* kSpecial = "__float__";  // as transformers has it

// An iterative parser: open arrays and objects are kept on a stack of our own, never on the
// machine's, so nesting costs nothing but its limit.
class JsonParser {
 public:
  JsonParser(std::string_view text, const JsonLimits& limits)
      : scan_(text, limits.first_line), limits_(limits) {
    if (text.size() > limits.bytes) {
      fail(ErrorKind::kMalformed, "JSON of ", text.size(), " bytes; the limit is ", limits.bytes);
    }
  }

  Json parse() {
    Json root;
    value(root);
    while (!open_.empty()) next_member();
    scan_.expect_end();
    return root;
  }

 private:
  struct Container {
    Json* json;
    size_t position;  // of its opening bracket
  };

  // Reads a value into `out`; an array or object is only opened.
  void value(Json& out) {
    switch (scan_.peek()) {
      case '{':
        return open(out, Json::object());
      case '[':
        return open(out, Json::array());
      case '"':
        out = scan_.string();
        return;
      case 't':
      case 'f':
      case 'n':
        out = scan_.literal();
        return;
      default:
        if (limits_.special_numbers && special_number(out)) return;
        out = scan_.number();
    }
  }

  // Reads one of the numbers that JSON has not, if it comes next.
  bool special_number(Json& out) {
    for (const char* word : {"Infinity", "-Infinity", "NaN"}) {
      if (!scan_.accept_word(word)) continue;
      out = {{kSpecial, word}};
      return true;
    }
    return false;
  }

  void open(Json& out, Json empty) {
    if (open_.size() >= static_cast<size_t>(limits_.depth)) {
      scan_.fail_at(scan_.position(), str("arrays and objects nested deeper than ", limits_.depth));
    }
    out = std::move(empty);
    open_.push_back({&out, scan_.position()});
    scan_.accept(scan_.peek());
    if (scan_.accept(out.is_object() ? '}' : ']')) open_.pop_back();
  }

  // Reads the next member of the innermost container, which has one, and closes what ends after it.
  void next_member() {
    Json& container = *open_.back().json;
    const size_t depth = open_.size();
    if (container.is_object()) {
      std::string key = scan_.string();
      scan_.expect(':', "':' after a key");
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
    while (!open_.empty() && !scan_.accept(',')) {
      const bool is_object = open_.back().json->is_object();
      scan_.expect(is_object ? '}' : ']', is_object ? "',' or '}'" : "',' or ']'");
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
        scan_.fail_at(container.position, str("the object that begins here has the key ",
                                              quoted(name_of(i)), " twice"));
      }
    }
  }

  JsonScanner scan_;
  const JsonLimits& limits_;
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

Json read_config(const std::string& path) {
  return read_json(path, {.special_numbers = true});
}

const Json* special_number(const Json& value) {
  return value.is_object() && value.size() == 1 ? find_value(value, kSpecial) : nullptr;
}

namespace {

// Moves past one value. Iterative, so nesting costs no stack.
void skip_value(JsonScanner& scan) {
  int64_t open = 0;
  do {
    const char c = scan.peek();
    if (c == '{' || c == '[') {
      scan.accept(c);
      ++open;
    } else if (c == '}' || c == ']') {
      scan.accept(c);
      --open;
    } else if (c == ',' || c == ':') {
      scan.accept(c);
    } else if (c == '"') {
      scan.string();
    } else if (c == 't' || c == 'f' || c == 'n') {
      scan.literal();
    } else {
      scan.number();
    }
  } while (open > 0);
}

// Moves from the opening bracket of a value to its member `step`; false if there is none.
bool enter(JsonScanner& scan, const std::string& step) {
  const char closing = scan.peek() == '{' ? '}' : ']';
  if (!scan.accept('{') && !scan.accept('[')) return false;
  for (int64_t index = 0; scan.peek() != closing; ++index) {
    const bool found = closing == '}' ? scan.string() == step : str(index) == step;
    if (closing == '}') scan.expect(':', "':'");
    if (found) return true;
    skip_value(scan);
    scan.accept(',');
  }
  return false;
}

}  // namespace

size_t json_position(std::string_view text, std::span<const std::string> path) {
  JsonScanner scan(text);
  scan.peek();
  size_t position = scan.position();
  for (const std::string& step : path) {
    if (!enter(scan, step)) break;
    scan.peek();
    position = scan.position();
  }
  return position;
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
