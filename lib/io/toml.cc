#include "lib/io/toml.h"

#include <toml++/toml.h>

#include <cmath>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {
namespace {

TomlPosition position(const toml::source_region& source) {
  return {static_cast<int>(source.begin.line), static_cast<int>(source.begin.column)};
}

class Converter {
 public:
  Converter(TomlDocument& document, const std::string& place)
      : document_(document), place_(place) {}

  Json convert(const toml::node& node, const std::string& pointer, int depth) {
    document_.values[pointer] = position(node.source());
    if (depth > limits::kJsonDepth) {
      refuse(node, str("nested more than ", limits::kJsonDepth, " deep"));
    }
    if (const toml::table* table = node.as_table()) return convert_table(*table, pointer, depth);
    if (const toml::array* array = node.as_array()) {
      Json out = Json::array();
      for (size_t i = 0; i < array->size(); ++i) {
        out.push_back(convert(*array->get(i), str(pointer, "/", i), depth + 1));
      }
      return out;
    }
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* integer = node.as_integer()) return integer->get();
    if (const auto* number = node.as_floating_point()) return number->get();
    if (const auto* flag = node.as_boolean()) return flag->get();
    refuse(node, "dates and times are not used here; write a text in quotes");
  }

  Json convert_table(const toml::table& table, const std::string& pointer, int depth) {
    Json out = Json::object();
    for (const auto& [key, node] : table) {
      const std::string member = toml_pointer(pointer, key.str());
      document_.keys[member] = position(key.source());
      out[std::string(key.str())] = convert(node, member, depth + 1);
    }
    return out;
  }

 private:
  [[noreturn]] void refuse(const toml::node& node, const std::string& why) {
    const TomlPosition at = position(node.source());
    fail(ErrorKind::kMalformed, place_of(place_), ":", at.line, ":", at.column, ": ", why);
  }

  TomlDocument& document_;
  const std::string& place_;
};

std::string escaped(const std::string& text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = str(value);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

// See limits.h. Points in texts count too: where a text ends is for the parser to say.
void check_limits(std::string_view text, const std::string& place) {
  if (text.size() > limits::kTomlBytes) {
    fail(ErrorKind::kMalformed, place_of(place), ": longer than ", limits::kTomlBytes, " bytes");
  }
  int line = 1, points = 0;
  for (const char c : text) {
    if (c == '\n') ++line, points = 0;
    if (c == '.' && ++points > limits::kTomlPoints) {
      fail(ErrorKind::kMalformed, place_of(place), ":", line, ":1: more than ", limits::kTomlPoints,
           " points in one line");
    }
  }
}

}  // namespace

std::string toml_pointer(std::string pointer, std::string_view name) {
  pointer += '/';
  for (const char c : name) {
    if (c == '~') {
      pointer += "~0";
    } else if (c == '/') {
      pointer += "~1";
    } else {
      pointer += c;
    }
  }
  return pointer;
}

TomlDocument parse_toml(std::string_view text, const std::string& place) {
  check_limits(text, place);
  TomlDocument document;
  try {
    const toml::table table = toml::parse(text);
    document.root = Converter(document, place).convert_table(table, "", 0);
  } catch (const toml::parse_error& error) {
    const TomlPosition at = position(error.source());
    fail(ErrorKind::kMalformed, place_of(place), ":", at.line, ":", at.column,
         ": no valid TOML: ", quoted(error.description(), 200));
  }
  return document;
}

Json parse_toml_value(std::string_view text, const std::string& place) {
  // A newline would smuggle in a second key.
  if (text.find('\n') != text.npos) {
    fail(ErrorKind::kMalformed, place_of(place), ": a value is one line");
  }
  const TomlDocument document = parse_toml(str("value = ", text), place);
  return document.root["value"];
}

std::string toml_value(const Json& value) {
  if (value.is_string()) return escaped(value.get<std::string>());
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_float()) return float_text(value.get<double>());
  if (value.is_array()) {
    std::string out = "[";
    for (const Json& element : value) out += (out.size() > 1 ? ", " : "") + toml_value(element);
    return out + "]";
  }
  return str(value.get<int64_t>());
}

}  // namespace lumen::io
