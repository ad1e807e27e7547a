// Methods of str.
#include <algorithm>

#include "lib/base/strings.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/methods.h"
#include "lib/text/jinja/operators.h"
#include "lib/text/jinja/python_text.h"
#include "lib/text/jinja/string_operations.h"

namespace lumen::text::jinja {

namespace {

// `text` as a string of the subject's kind: methods of Markup give Markup.
Value like(Interpreter& in, const Value& subject, std::string text) {
  in.heap().check(text.size());
  return Value::object(in.heap().make<String>(std::move(text), subject.string().markup()));
}

std::string_view require(const Value& value, std::string_view method) {
  if (value.is_undefined()) refuse_undefined(value);
  if (!value.is_string()) refuse(method, " needs a string, not '", type_name(value), "'");
  return value.view();
}

// An argument inserted into the subject: Markup escapes what is not Markup.
Value inserted(Interpreter& in, const Value& subject, const Value& value, std::string_view method) {
  require(value, method);
  return subject.string().markup() ? escape_html(in.heap(), value) : value;
}

template <std::string (*convert)(std::string_view)>
Value converted(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("the method", arguments);
  in.heap().check(3 * subject.view().size());
  in.heap().touch(4 * subject.view().size());
  return like(in, subject, convert(subject.view()));
}

// strip, lstrip, rstrip.
template <bool left, bool right>
Value stripped(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [characters] = parameters("strip", arguments, {"chars"});
  std::string_view text = subject.view();
  in.heap().touch(text.size());
  if (!characters.given() || characters.is_none()) {
    if (left) text = strip_left(text);
    if (right) text = strip_right(text);
  } else {
    in.heap().step(require(characters, "strip").size());
    const CharacterSet any(characters.view());
    if (left) text = strip_left(text, any);
    if (right) text = strip_right(text, any);
  }
  return like(in, subject, std::string(text));
}

// A part of the subject: the optional start and end of find, count, startswith, ….
struct Part {
  std::string_view text;
  int64_t start;  // in code points
  bool valid;     // start is within the text
};

Part part_of(Interpreter& in, const Value& subject, const Value& start, const Value& end) {
  const std::string_view text = subject.view();
  in.heap().touch(text.size());
  if (!start.given() && !end.given()) return {text, 0, true};
  const int64_t size = subject.string().length();
  const auto position = [&](const Value& value, int64_t absent) {
    if (!value.given() || value.is_none()) return absent;
    const int64_t at = to_index(value, "a position");
    return at < 0 ? std::max<int64_t>(at + size, 0) : at;
  };
  const int64_t from = position(start, 0), to = std::min(position(end, size), size);
  if (from > size || from > to) return {"", from, false};
  const size_t first = offset_of(text, from);
  return {text.substr(first, offset_of(text.substr(first), to - from)), from, true};
}

template <bool at_end>
Value affix(Interpreter& in, const Value& subject, Arguments& arguments) {
  constexpr std::string_view kName = at_end ? "endswith" : "startswith";
  const auto [wanted, start, end] = parameters(kName, arguments, {"prefix", "start", "end"}, 1);
  const Part part = part_of(in, subject, start, end);
  const auto matches = [&](const Value& candidate) {
    const std::string_view text = require(candidate, kName);
    return part.valid && (at_end ? part.text.ends_with(text) : part.text.starts_with(text));
  };
  if (wanted.is_sequence() && wanted.sequence().is_tuple()) {
    const Values& all = wanted.sequence().items();
    return Value::boolean(std::any_of(all.begin(), all.end(), matches));
  }
  return Value::boolean(matches(wanted));
}

// find, rfind; index, rindex fail instead of giving -1.
template <bool from_right, bool must_exist>
Value found(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [wanted, start, end] = parameters("find", arguments, {"sub", "start", "end"}, 1);
  const std::string_view text = require(wanted, "find");
  const Part part = part_of(in, subject, start, end);
  const size_t at = !part.valid  ? std::string_view::npos
                    : from_right ? find_last(in.heap(), part.text, text)
                                 : find(in.heap(), part.text, text);
  if (at != std::string_view::npos) {
    return Value::integer(part.start + count_code_points(part.text.substr(0, at)));
  }
  if (must_exist) refuse("substring not found");
  return Value::integer(-1);
}

Value count_text(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [wanted, start, end] = parameters("count", arguments, {"sub", "start", "end"}, 1);
  const std::string_view text = require(wanted, "count");
  const Part part = part_of(in, subject, start, end);
  if (!part.valid) return Value::integer(0);
  if (text.empty()) return Value::integer(count_code_points(part.text) + 1);
  int64_t times = 0;
  for (size_t pos = 0; (pos = find(in.heap(), part.text, text, pos)) != std::string_view::npos;) {
    ++times;
    pos += text.size();
  }
  return Value::integer(times);
}

Value pieces(Interpreter& in, const Value& subject, const Pieces& parts) {
  Values out;
  out.reserve(parts.size());
  for (std::string_view part : parts) out.push_back(like(in, subject, std::string(part)));
  return make_list(in.heap(), std::move(out));
}

template <bool from_right>
Value split_text(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [separator, maximum] = parameters("split", arguments, {"sep", "maxsplit"});
  const int64_t limit = maximum.given() ? to_index(maximum, "maxsplit") : -1;
  Heap& heap = in.heap();
  if (!separator.given() || separator.is_none()) {
    return pieces(
        in, subject,
        from_right ? split_right(heap, subject.view(), limit) : split(heap, subject.view(), limit));
  }
  const std::string_view by = require(separator, "split");
  return pieces(in, subject,
                from_right ? split_right(heap, subject.view(), by, limit)
                           : split(heap, subject.view(), by, limit));
}

Value split_to_lines(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [keep_ends] = parameters("splitlines", arguments, {"keepends"});
  const bool keep = keep_ends.given() && truth(keep_ends);
  return pieces(in, subject, split_lines(in.heap(), subject.view(), keep));
}

template <bool from_right>
Value partition(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [separator] = parameters("partition", arguments, {"sep"}, 1);
  const std::string_view by = require(separator, "partition");
  if (by.empty()) refuse("empty separator");
  const std::string_view text = subject.view();
  in.heap().touch(text.size());
  const size_t at = from_right ? find_last(in.heap(), text, by) : find(in.heap(), text, by);
  std::string_view before = from_right ? "" : text, between, after = from_right ? text : "";
  if (at != std::string_view::npos) {
    before = text.substr(0, at);
    between = by;
    after = text.substr(at + by.size());
  }
  return make_tuple(
      in.heap(), {like(in, subject, std::string(before)), like(in, subject, std::string(between)),
                  like(in, subject, std::string(after))});
}

Value replace_part(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [old, replacement, limit] =
      parameters("replace", arguments, {"old", "new", "count"}, 2);
  const std::string_view from = require(old, "replace");
  const Value to = inserted(in, subject, replacement, "replace");
  const int64_t most = limit.given() ? to_index(limit, "count") : -1;
  return like(in, subject, replace(in.heap(), subject.view(), from, to.view(), most));
}

Value join_parts(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [parts] = parameters("join", arguments, {"iterable"}, 1);
  TextBuilder out(in.heap());
  bool first = true;
  for (const Value& part : iterate(in.heap(), parts)) {
    in.heap().step();
    if (!first) out.append(subject.view());
    first = false;
    if (subject.string().markup()) {
      out.append(escape_html(in.heap(), part).view());
    } else {
      out.append(require(part, "join"));
    }
  }
  return like(in, subject, out.take());
}

Value fill_braces(Interpreter& in, const Value& subject, Arguments& arguments) {
  const FieldLookup field = [&](const Value& object, const Value& key, bool attribute) {
    return attribute ? in.get_attribute(object, key.view()) : in.get_item(object, key);
  };
  return like(in, subject,
              brace_format(in.heap(), subject.view(), arguments, field, subject.string().markup()));
}

Value format_map(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [mapping] = parameters("format_map", arguments, {"mapping"}, 1);
  if (!mapping.is_dict()) refuse("format_map needs a mapping");
  Arguments named;
  for (const auto& [key, value] : mapping.dict().items()) {
    if (key.is_string()) named.named.emplace_back(key.string().text(), value);
  }
  return fill_braces(in, subject, named);
}

// ljust, rjust, center.
enum class Side { kLeft, kRight, kBoth };
template <Side side>
Value justified(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [width, fill] = parameters("the method", arguments, {"width", "fillchar"}, 1);
  const int64_t columns = to_index(width, "width");
  const Value character = fill.given() ? inserted(in, subject, fill, "fillchar") : in.text(" ");
  if (character.string().length() != 1) refuse("the fill character must be one character long");
  const int64_t missing = std::max<int64_t>(columns, 0) - subject.string().length();
  if (missing <= 0) return subject;
  Heap& heap = in.heap();
  const std::string_view by = character.view();
  if (side == Side::kBoth) return like(in, subject, center(heap, subject.view(), columns, by));
  return like(in, subject,
              pad(heap, subject.view(), side == Side::kRight ? missing : 0,
                  side == Side::kLeft ? missing : 0, by));
}

Value zero_fill(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [width] = parameters("zfill", arguments, {"width"}, 1);
  const int64_t missing =
      std::max<int64_t>(to_index(width, "width"), 0) - subject.string().length();
  if (missing <= 0) return subject;
  std::string_view text = subject.view();
  const bool sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  const std::string filled = pad(in.heap(), text.substr(sign ? 1 : 0), missing, 0, "0");
  return like(in, subject, std::string(text.substr(0, sign ? 1 : 0)) + filled);
}

template <bool at_end>
Value without_affix(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [affix_value] =
      parameters(at_end ? "removesuffix" : "removeprefix", arguments, {"affix"}, 1);
  const std::string_view wanted = require(affix_value, "removeprefix");
  std::string_view text = subject.view();
  if (at_end ? text.ends_with(wanted) : text.starts_with(wanted)) {
    text = at_end ? text.substr(0, text.size() - wanted.size()) : text.substr(wanted.size());
  }
  return like(in, subject, std::string(text));
}

Value expand_tabs(Interpreter& in, const Value& subject, Arguments& arguments) {
  const auto [tab_size] = parameters("expandtabs", arguments, {"tabsize"});
  const int64_t columns = tab_size.given() ? to_index(tab_size, "tabsize") : 8;
  TextBuilder out(in.heap());
  int64_t column = 0;
  for (std::string_view c : code_points(subject.view())) {
    in.heap().step();
    if (c == "\t") {
      const int64_t blanks = columns > 0 ? columns - column % columns : 0;
      in.heap().check(static_cast<size_t>(blanks));
      out.append(static_cast<size_t>(blanks), ' ');
      column += blanks;
    } else {
      out.append(c);
      column = c == "\n" || c == "\r" ? 0 : column + 1;
    }
  }
  return like(in, subject, out.take());
}

// isalpha, isdigit, …: not empty, and all characters are so.
template <bool (*holds)(uint32_t)>
Value all_are(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("the method", arguments);
  const std::string_view text = subject.view();
  in.heap().touch(4 * text.size());
  for (size_t pos = 0; pos < text.size();) {
    if (!holds(next_code_point(text, pos))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

bool alphabetic(uint32_t c) {
  return is_alphabetic(c);
}
bool decimal(uint32_t c) {
  return is_decimal(c);
}
bool digit(uint32_t c) {
  return has_property(kProperties.digit, c);
}
bool numeric(uint32_t c) {
  return has_property(kProperties.numeric, c);
}
bool alphanumeric(uint32_t c) {
  return alphabetic(c) || decimal(c) || digit(c) || numeric(c);
}
bool identifier_part(uint32_t c) {
  return c == '_' || alphabetic(c) || decimal(c);
}

template <bool (*holds)(uint32_t)>
Value all_or_none(Interpreter& in, const Value& subject, Arguments& arguments) {
  return subject.view().empty() ? Value::boolean(true) : all_are<holds>(in, subject, arguments);
}

bool ascii(uint32_t c) {
  return c < 0x80;
}

Value is_identifier(Interpreter& in, const Value& subject, Arguments& arguments) {
  size_t pos = 0;
  if (!subject.view().empty() && decimal(next_code_point(subject.view(), pos))) {
    return Value::boolean(false);
  }
  return all_are<identifier_part>(in, subject, arguments);
}

template <bool upper>
Value is_case(Interpreter& in, const Value& subject, Arguments& arguments) {
  return in.apply(*find_test(upper ? "upper" : "lower"), subject, arguments);
}

Value is_title(Interpreter& in, const Value& subject, Arguments& arguments) {
  no_parameters("istitle", arguments);
  in.heap().touch(4 * subject.view().size());
  bool cased = false, any = false;
  for (size_t pos = 0; pos < subject.view().size();) {
    const uint32_t c = next_code_point(subject.view(), pos);
    const bool upper = has_property(kProperties.uppercase, c) || is_titlecase(c);
    const bool lower = has_property(kProperties.lowercase, c);
    if ((upper && cased) || (lower && !cased)) return Value::boolean(false);
    cased = upper || lower;
    any |= cased;
  }
  return Value::boolean(any);
}

constexpr Builtin kMethods[] = {
    {"capitalize", converted<to_capitalized>},
    {"casefold", converted<to_casefold>},
    {"center", justified<Side::kBoth>},
    {"count", count_text},
    {"endswith", affix<true>},
    {"expandtabs", expand_tabs},
    {"find", found<false, false>},
    {"format", fill_braces},
    {"format_map", format_map},
    {"index", found<false, true>},
    {"isalnum", all_are<alphanumeric>},
    {"isalpha", all_are<alphabetic>},
    {"isascii", all_or_none<ascii>},
    {"isdecimal", all_are<decimal>},
    {"isdigit", all_are<digit>},
    {"isidentifier", is_identifier},
    {"islower", is_case<false>},
    {"isnumeric", all_are<numeric>},
    {"isprintable", all_or_none<is_printable>},
    {"isspace", all_are<is_space>},
    {"istitle", is_title},
    {"isupper", is_case<true>},
    {"join", join_parts},
    {"ljust", justified<Side::kLeft>},
    {"lower", converted<to_lower>},
    {"lstrip", stripped<true, false>},
    {"partition", partition<false>},
    {"removeprefix", without_affix<false>},
    {"removesuffix", without_affix<true>},
    {"replace", replace_part},
    {"rfind", found<true, false>},
    {"rindex", found<true, true>},
    {"rjust", justified<Side::kRight>},
    {"rpartition", partition<true>},
    {"rsplit", split_text<true>},
    {"rstrip", stripped<false, true>},
    {"split", split_text<false>},
    {"splitlines", split_to_lines},
    {"startswith", affix<false>},
    {"strip", stripped<true, true>},
    {"swapcase", converted<swap_case>},
    {"title", converted<to_title>},
    {"upper", converted<to_upper>},
    {"zfill", zero_fill},
};

}  // namespace

std::span<const Builtin> string_methods() {
  return kMethods;
}

}  // namespace lumen::text::jinja
