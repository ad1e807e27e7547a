// str.format: replacement fields in braces.
#include "lib/text/jinja/format_spec.h"
#include "lib/text/jinja/formatting.h"

namespace lumen::text::jinja {

namespace {

class BraceFormatter {
 public:
  BraceFormatter(Heap& heap, const Arguments& arguments, const FieldLookup& field, bool escape)
      : heap_(heap), arguments_(arguments), field_(field), escape_(escape) {}

  // A specification may have fields, whose own specifications have none: '{:{width}}'.
  std::string format(std::string_view text, int depth) {
    if (depth > 3) refuse("Max string recursion exceeded");
    TextBuilder out(heap_);
    for (size_t pos = 0; pos < text.size();) {
      const char c = text[pos];
      if (c != '{' && c != '}') {
        const size_t end = std::min(text.find_first_of("{}", pos), text.size());
        out.append(text.substr(pos, end - pos));
        pos = end;
      } else if (pos + 1 < text.size() && text[pos + 1] == c) {
        out.append(c);
        pos += 2;
      } else if (c == '}') {
        refuse("Single '}' encountered in format string");
      } else {
        const size_t end = closing(text, pos + 1);
        out.append(replacement(text.substr(pos + 1, end - pos - 1), depth));
        pos = end + 1;
      }
    }
    return out.take();
  }

 private:
  static size_t closing(std::string_view text, size_t pos) {
    for (int depth = 1; pos < text.size(); ++pos) {
      if (text[pos] == '{') ++depth;
      if (text[pos] == '}' && --depth == 0) return pos;
      if (text[pos] == '[') {  // braces in a key do not count
        while (pos < text.size() && text[pos] != ']') ++pos;
      }
    }
    refuse("expected '}' before end of string");
  }

  std::string replacement(std::string_view field, int depth) {
    size_t name_end = 0;
    while (name_end < field.size() && field[name_end] != '!' && field[name_end] != ':') {
      if (field[name_end] == '[') {
        while (name_end < field.size() && field[name_end] != ']') ++name_end;
        if (name_end == field.size()) break;
      }
      ++name_end;
    }
    Value value = lookup(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) {
        refuse("expected ':' after conversion specifier");
      }
      value = converted(value, rest[1]);
      rest.remove_prefix(2);
    }
    if (!rest.empty()) rest.remove_prefix(1);
    const std::string spec = format(rest, depth + 1);
    if (escape_ && value.is_string() && value.string().markup()) {
      if (!spec.empty()) refuse("Unsupported format specification for Markup.");
      return std::string(value.view());
    }
    std::string text = format_value(heap_, value, spec);
    return escape_ ? escape_html(text) : text;
  }

  Value converted(const Value& value, char conversion) {
    if (conversion == 's') return as_text(heap_, value);
    if (conversion == 'r') return Value::text(heap_, to_repr(heap_, value));
    refuse("Unknown conversion specifier ", lumen::quoted(std::string(1, conversion)));
  }

  static bool digits(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  Value first(std::string_view name) {
    int64_t index = 0;
    if (name.empty()) {
      if (manual_) refuse("cannot switch from manual field specification to automatic numbering");
      automatic_ = true;
      index = next_++;
    } else if (digits(name)) {
      if (automatic_) {
        refuse("cannot switch from automatic field numbering to manual field specification");
      }
      manual_ = true;
      if (!parse_number(name, index)) refuse("Too many decimal digits in format string");
    } else {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      refuse("the format names ", lumen::quoted(name), ", which is not an argument");
    }
    if (index >= static_cast<int64_t>(arguments_.positional.size())) {
      refuse("Replacement index ", index, " out of range for positional args tuple");
    }
    return arguments_.positional[static_cast<size_t>(index)];
  }

  Value lookup(std::string_view name) {
    size_t pos = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, pos));
    while (pos < name.size()) {
      if (name[pos] == '.') {
        const size_t end = std::min(name.find_first_of(".[", pos + 1), name.size());
        if (end == pos + 1) refuse("Empty attribute in format string");
        value = field_(value, Value::text(heap_, std::string(name.substr(pos + 1, end - pos - 1))),
                       true);
        pos = end;
        continue;
      }
      const size_t end = name[pos] == '[' ? name.find(']', pos) : std::string_view::npos;
      if (end == std::string_view::npos || end == pos + 1) {
        refuse("malformed field ", lumen::quoted(name), " in format string");
      }
      const std::string_view key = name.substr(pos + 1, end - pos - 1);
      int64_t index = 0;
      value = field_(value,
                     digits(key) && parse_number(key, index) ? Value::integer(index)
                                                             : Value::text(heap_, std::string(key)),
                     false);
      pos = end + 1;
    }
    return value;
  }

  Heap& heap_;
  const Arguments& arguments_;
  const FieldLookup& field_;
  bool escape_;
  bool automatic_ = false, manual_ = false;
  int64_t next_ = 0;
};

}  // namespace

std::string brace_format(Heap& heap, std::string_view format, const Arguments& arguments,
                         const FieldLookup& field, bool escape) {
  return BraceFormatter(heap, arguments, field, escape).format(format, 1);
}

}  // namespace lumen::text::jinja
