// Filters from text to text.
#include <algorithm>
#include <cmath>

#include "lib/base/strings.h"
#include "lib/text/jinja/builtins.h"
#include "lib/text/jinja/format_spec.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/operators.h"
#include "lib/text/jinja/python_text.h"
#include "lib/text/jinja/string_operations.h"

namespace lumen::text::jinja {

namespace {

// `text` as a string of the same kind (Markup or not) as `like`.
Value same_kind(Interpreter& in, std::string text, const Value& like) {
  return Value::object(in.heap().make<String>(std::move(text), like.string().markup()));
}

// Applies `convert` to the subject as text.
template <std::string (*convert)(std::string_view)>
Value convert_case(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("the filter", arguments);
  const Value text = as_text(in.heap(), subject);
  in.heap().touch(4 * text.view().size());
  in.heap().check(3 * text.view().size());
  return same_kind(in, convert(text.view()), text);
}

// Words as the title filter sees them: begun by white space or one of -({[<.
std::string title_words(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    const size_t first = offset_of(word, 1);
    out += to_upper(std::string_view(word).substr(0, first));
    out += to_lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t c = next_code_point(text, pos);
    if (is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      flush();
      append_utf8(out, c);
    } else {
      append_utf8(word, c);
    }
  }
  flush();
  return out;
}

Value trim(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [characters] = parameters("trim", arguments, {"chars"});
  const Value text = as_text(in.heap(), subject);
  in.heap().touch(text.view().size());
  if (!characters.given() || characters.is_none()) {
    return same_kind(in, std::string(strip_right(strip_left(text.view()))), text);
  }
  if (!characters.is_string()) refuse("trim: chars must be a string");
  in.heap().step(characters.view().size());
  const CharacterSet any(characters.view());
  return same_kind(in, std::string(strip_right(strip_left(text.view(), any), any)), text);
}

Value string(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("string", arguments);
  return as_text(in.heap(), subject);
}

Value replace_text(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [old, replacement, count] =
      parameters("replace", arguments, {"old", "new", "count"}, 2);
  Heap& heap = in.heap();
  const int64_t limit = count.given() && !count.is_none() ? to_index(count, "count") : -1;
  return Value::text(heap, replace(heap, to_str(heap, subject), to_str(heap, old),
                                   to_str(heap, replacement), limit));
}

Value center_text(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [width] = parameters("center", arguments, {"width"});
  const Value text = as_text(in.heap(), subject);
  const int64_t columns = width.given() ? to_index(width, "width") : 80;
  return same_kind(in, center(in.heap(), text.view(), columns, " "), text);
}

Value format(Interpreter& in, const Value& subject, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    refuse("format takes positional or keyword arguments, not both");
  }
  const Value text = as_text(in.heap(), subject);
  if (arguments.named.empty()) {
    return percent_format(in.heap(), text, make_tuple(in.heap(), arguments.positional));
  }
  const Ref<Dict> named = in.heap().make<Dict>();
  for (const auto& [name, value] : arguments.named) named->set(in.text(name), value);
  return percent_format(in.heap(), text, Value::object(named));
}

Value escape(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("escape", arguments);
  return escape_html(in.heap(), subject);
}

Value force_escape(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("forceescape", arguments);
  return escape_html(in.heap(), Value::text(in.heap(), to_str(in.heap(), subject)));
}

Value safe(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("safe", arguments);
  return make_markup(in.heap(), to_str(in.heap(), subject));
}

std::string unescape_html(std::string_view text);

Value strip_tags(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("striptags", arguments);
  const std::string text = to_str(in.heap(), subject);
  std::string kept;
  size_t pos = 0;
  for (size_t open; (open = text.find('<', pos)) != std::string::npos;) {
    const bool comment = text.compare(open, 4, "<!--") == 0;
    const size_t close = comment ? text.find("-->", open + 4) : text.find('>', open);
    if (close == std::string::npos) break;
    kept += text.substr(pos, open - pos);
    pos = close + (comment ? 3 : 1);
  }
  kept += text.substr(pos);
  std::string joined;
  for (std::string_view word : split(in.heap(), kept, -1)) {
    if (!joined.empty()) joined += ' ';
    joined += word;
  }
  return Value::text(in.heap(), unescape_html(joined));
}

// The entities escape_html writes, the named ones of XML, and numbers.
std::string unescape_html(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kNamed[] = {
      {"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}, {"nbsp", "\u00a0"}};
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    constexpr size_t kLongest = 12;
    const std::string_view entity_text = text.substr(pos, kLongest);
    const size_t size = text[pos] == '&' ? entity_text.find(';') : std::string_view::npos;
    if (size == std::string_view::npos) {
      out += text[pos++];
      continue;
    }
    const std::string_view body = entity_text.substr(1, size - 1);
    const auto named = std::find_if(std::begin(kNamed), std::end(kNamed),
                                    [&](const auto& entity) { return entity.first == body; });
    int64_t number = -1;
    if (body.size() > 2 && body[0] == '#' && (body[1] | 0x20) == 'x') {
      if (!parse_python_int(body.substr(2), 16, number)) number = -1;
    } else if (body.size() > 1 && body[0] == '#') {
      if (!parse_python_int(body.substr(1), 10, number)) number = -1;
    }
    if (named != std::end(kNamed)) {
      out += named->second;
    } else if (number > 0 && number <= 0x10FFFF && (number < 0xD800 || number > 0xDFFF)) {
      append_utf8(out, static_cast<uint32_t>(number));
    } else {
      out += text[pos++];
      continue;
    }
    pos += size + 1;
  }
  return out;
}

std::string percent_encoded(std::string_view text, bool query) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       (c == '/' && !query);
    if (plain) {
      out += c;
    } else if (c == ' ' && query) {
      out += '+';
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

Value url_encode(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("urlencode", arguments);
  Heap& heap = in.heap();
  const auto encode = [&](const Value& value, bool query) {
    const std::string text = to_str(heap, value);
    heap.check(3 * text.size());
    heap.touch(3 * text.size());
    return percent_encoded(text, query);
  };
  if (subject.is_string() || !iterable(subject)) {
    return Value::text(heap, encode(subject, false));
  }
  TextBuilder out(heap);
  const auto add = [&](const Value& key, const Value& value) {
    if (out.size() > 0) out.append('&');
    out.append(encode(key, true));
    out.append('=');
    out.append(encode(value, true));
  };
  if (subject.is_dict()) {
    for (const auto& [key, value] : subject.dict().items()) add(key, value);
  } else {
    for (const Value& pair : iterate(heap, subject)) {
      const Values parts = iterate(heap, pair);
      if (parts.size() != 2) refuse("urlencode needs pairs of key and value");
      add(parts[0], parts[1]);
    }
  }
  return Value::text(heap, out.take());
}

Value xml_attributes(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [autospace] = parameters("xmlattr", arguments, {"autospace"});
  if (!subject.is_dict()) refuse("xmlattr needs a mapping");
  Heap& heap = in.heap();
  TextBuilder out(heap);
  for (const auto& [key, value] : subject.dict().items()) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string() || key.view().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      refuse("invalid character in attribute name ", lumen::quoted(to_str(heap, key)));
    }
    if (out.size() > 0 || !autospace.given() || truth(autospace)) out.append(' ');
    out.append(escape_html(heap, key).view());
    out.append("=\"");
    out.append(escape_html(heap, value).view());
    out.append('"');
  }
  return Value::text(heap, out.take());
}

Value file_size(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [binary] = parameters("filesizeformat", arguments, {"binary"});
  double bytes = 0;
  if (subject.is_number()) {
    bytes = subject.as_double();
  } else if (!subject.is_string() || !parse_python_float(subject.view(), bytes)) {
    refuse("filesizeformat needs a number, not ", type_name(subject));
  }
  const bool powers_of_two = binary.given() && truth(binary);
  const double base = powers_of_two ? 1024 : 1000;
  if (bytes == 1) return in.text("1 Byte");
  if (bytes < base) {
    if (!std::isfinite(bytes)) refuse("filesizeformat needs a finite number");
    return in.text(str(static_cast<int64_t>(bytes), " Bytes"));
  }
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  for (size_t i = 0; i < kPrefixes.size(); ++i) {
    unit *= base;
    if (bytes < unit || i + 1 == kPrefixes.size()) {
      FormatSpec spec;
      spec.type = 'f';
      spec.precision = 1;
      const char prefix = powers_of_two && i == 0 ? 'K' : kPrefixes[i];
      return in.text(str(format_real(in.heap(), base * bytes / unit, spec), " ", prefix,
                         powers_of_two ? "iB" : "B"));
    }
  }
  return {};
}

Value word_count(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("wordcount", arguments);
  const Value text = as_text(in.heap(), subject);
  in.heap().touch(4 * text.view().size());
  int64_t words = 0;
  bool inside = false;
  for (size_t pos = 0; pos < text.view().size();) {
    const uint32_t c = next_code_point(text.view(), pos);
    const bool word = c == '_' || is_alphabetic(c) || has_property(kProperties.numeric, c);
    words += word && !inside;
    inside = word;
  }
  return Value::integer(words);
}

constexpr Builtin kTextFilters[] = {
    {"capitalize", convert_case<to_capitalized>},
    {"center", center_text},
    {"e", escape},
    {"escape", escape},
    {"filesizeformat", file_size},
    {"forceescape", force_escape},
    {"format", format},
    {"lower", convert_case<to_lower>},
    {"replace", replace_text},
    {"safe", safe},
    {"string", string},
    {"striptags", strip_tags},
    {"title", convert_case<title_words>},
    {"trim", trim},
    {"upper", convert_case<to_upper>},
    {"urlencode", url_encode},
    {"wordcount", word_count},
    {"xmlattr", xml_attributes},
};

}  // namespace

std::span<const Builtin> text_filters() {
  return kTextFilters;
}

}  // namespace lumen::text::jinja
