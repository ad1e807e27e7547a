#include <algorithm>
#include <cmath>

#include "lib/base/limits.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/operators.h"

namespace lumen::text::jinja {

namespace {

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style), out_(heap) {}

  std::string write(const Value& value) {
    append(value, 0);
    return out_.take();
  }

 private:
  void append(const Value& value, int depth) {
    heap_.step();
    if (depth > limits::kTemplateDepth) {
      refuse("a value for JSON is nested deeper than ", limits::kTemplateDepth, " levels");
    }
    if (value.is_string()) {
      append_string(value.view());
    } else if (value.is_dict()) {
      append_dict(value.dict(), depth);
    } else if (value.is_sequence() && (value.sequence().is_list() || value.sequence().is_tuple())) {
      append_list(value.sequence().items(), depth);
    } else {
      out_.append(scalar(value));
    }
  }

  static std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return value.as_bool() ? "true" : "false";
      case Kind::kInt:
        return str(value.as_int());
      case Kind::kFloat: {
        const double real = value.as_double();
        if (std::isnan(real)) return "NaN";
        if (std::isinf(real)) return real < 0 ? "-Infinity" : "Infinity";
        return float_text(real);
      }
      default:
        refuse("Object of type ", type_name(value), " is not JSON serializable");
    }
  }

  void new_line(int depth) {
    if (!style_.multiline) return;
    out_.append('\n');
    for (int i = 0; i < depth; ++i) out_.append(style_.indent);
  }

  void append_list(const Values& items, int depth) {
    if (items.empty()) return out_.append("[]");
    out_.append('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line(depth + 1);
      append(items[i], depth + 1);
    }
    new_line(depth);
    out_.append(']');
  }

  void append_dict(const Dict& dict, int depth) {
    if (dict.items().empty()) return out_.append("{}");
    Dict::Items items = dict.items();
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
        return ordered(heap_, a.first, b.first, Relation::kLess);
      });
    }
    out_.append('{');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line(depth + 1);
      append_key(items[i].first);
      out_.append(style_.key_separator);
      append(items[i].second, depth + 1);
    }
    new_line(depth);
    out_.append('}');
  }

  void append_key(const Value& key) {
    if (key.is_string()) return append_string(key.view());
    if (!key.is_number() && !key.is_none()) {
      refuse("keys must be str, int, float, bool or None, not ", type_name(key));
    }
    append_string(scalar(key));
  }

  void append_unicode_escape(uint32_t unit) {
    constexpr char kHex[] = "0123456789abcdef";
    out_.append("\\u");
    for (int shift = 12; shift >= 0; shift -= 4) out_.append(kHex[(unit >> shift) & 15]);
  }

  void append_string(std::string_view text) {
    out_.append('"');
    for (size_t pos = 0; pos < text.size();) {
      const size_t begin = pos;
      const uint32_t c = next_code_point(text, pos);
      static constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
      static constexpr std::string_view kLetters = "\"\\nrtbf";
      const size_t known = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
      if (known != std::string_view::npos) {
        out_.append('\\');
        out_.append(kLetters[known]);
      } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F && c < 0x10000)) {
        append_unicode_escape(c);
      } else if (style_.ensure_ascii && c >= 0x10000) {
        append_unicode_escape(0xD800 + ((c - 0x10000) >> 10));
        append_unicode_escape(0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        out_.append(text.substr(begin, pos - begin));
      }
    }
    out_.append('"');
  }

  Heap& heap_;
  const JsonStyle& style_;
  TextBuilder out_;
};

}  // namespace

std::string to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  return JsonWriter(heap, style).write(value);
}

}  // namespace lumen::text::jinja
