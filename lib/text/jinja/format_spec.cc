#include "lib/text/jinja/format_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/operators.h"
#include "lib/text/jinja/python_text.h"

namespace lumen::text::jinja {

namespace {

constexpr int64_t kMaxPrecision = 4096;

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

int64_t read_number(std::string_view& text) {
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  if (digits == 0) return -1;
  int64_t number = 0;
  if (digits > 18 || !parse_number(text.substr(0, digits), number)) {
    refuse("too many digits in a format specification");
  }
  text.remove_prefix(digits);
  return number;
}

// `body` (sign excluded) with separators every `every` digits of its integer part.
std::string grouped(std::string_view body, char separator, size_t every) {
  size_t digits = 0;
  while (digits < body.size() && std::isxdigit(static_cast<unsigned char>(body[digits]))) ++digits;
  std::string out;
  for (size_t i = 0; i < digits; ++i) {
    if (i > 0 && (digits - i) % every == 0) out += separator;
    out += body[i];
  }
  return out + std::string(body.substr(digits));
}

std::string padded(Heap& heap, std::string_view head, std::string_view body, const FormatSpec& spec,
                   char default_align) {
  const int64_t used = count_code_points(head) + count_code_points(body);
  TextBuilder out(heap);
  if (spec.width <= used) {
    out.append(head);
    out.append(body);
    return out.take();
  }
  const auto missing = static_cast<size_t>(spec.width - used);
  heap.check(missing);
  const char align = spec.align ? spec.align : default_align;
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const auto fill = [&](size_t count) {
    if (spec.fill.size() == 1) return out.append(count, spec.fill[0]);
    for (size_t i = 0; i < count; ++i) out.append(spec.fill);
  };
  if (align == '=') out.append(head);
  fill(left);
  if (align != '=') out.append(head);
  out.append(body);
  fill(missing - left);
  return out.take();
}

std::string sign_of(bool negative, const FormatSpec& spec) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string real_digits(double magnitude, const FormatSpec& spec, char type) {
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  std::string buffer(static_cast<size_t>(precision) + 400, '\0');
  const auto format = type == 'e'   ? std::chars_format::scientific
                      : type == 'g' ? std::chars_format::general
                                    : std::chars_format::fixed;
  const int digits = type == 'g' ? std::max(precision, 1) : precision;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, format, digits).ptr;
  buffer.resize(static_cast<size_t>(end - buffer.data()));
  if (spec.alternate && type != 'g' && precision == 0) {
    buffer.insert(std::min(buffer.find('e'), buffer.size()), ".");
  }
  return buffer;
}

}  // namespace

FormatSpec parse_format_spec(std::string_view text) {
  FormatSpec spec;
  const std::string_view whole = text;
  const size_t first = text.empty() ? 0 : offset_of(text, 1);
  if (first < text.size() && is_align(text[first])) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  const auto take = [&](std::string_view any) -> char {
    if (text.empty() || any.find(text[0]) == std::string_view::npos) return 0;
    const char c = text[0];
    text.remove_prefix(1);
    return c;
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  take("z");
  spec.alternate = take("#") != 0;
  if (take("0")) {
    if (!spec.align) {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = std::max<int64_t>(read_number(text), 0);
  spec.grouping = take(",_");
  if (take(".")) {
    spec.precision = read_number(text);
    if (spec.precision < 0) refuse("Format specifier missing precision");
    if (spec.precision > kMaxPrecision) refuse("the precision ", spec.precision, " is too large");
  }
  if (!text.empty()) {
    spec.type = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty()) refuse("Invalid format specifier ", lumen::quoted(whole));
  return spec;
}

std::string format_text(Heap& heap, std::string_view text, const FormatSpec& spec) {
  if (spec.type != 0 && spec.type != 's') {
    refuse("Unknown format code '", spec.type, "' for object of type 'str'");
  }
  if (spec.align == '=' && spec.fill != "0") {
    refuse("'=' alignment not allowed in string format specifier");
  }
  FormatSpec adjusted = spec;
  if (spec.align == '=') adjusted.align = '<';
  if (spec.precision >= 0) text = text.substr(0, offset_of(text, spec.precision));
  return padded(heap, "", text, adjusted, '<');
}

std::string format_integer(Heap& heap, int64_t integer, const FormatSpec& spec) {
  const char type = spec.type ? spec.type : 'd';
  if (std::string_view("eEfFgG%").find(type) != std::string_view::npos) {
    return format_real(heap, static_cast<double>(integer), spec);
  }
  if (type == 'c') {
    if (integer < 0 || integer > 0x10FFFF || (integer >= 0xD800 && integer < 0xE000)) {
      refuse("%c argument ", integer, " is not a character");
    }
    std::string character;
    append_utf8(character, static_cast<uint32_t>(integer));
    return padded(heap, "", character, spec, '<');
  }
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  if (base == 10 && type != 'd' && type != 'n') {
    refuse("Unknown format code '", type, "' for object of type 'int'");
  }
  if (spec.precision >= 0) refuse("Precision not allowed in integer format specifier");
  const uint64_t magnitude =
      integer < 0 ? ~static_cast<uint64_t>(integer) + 1 : static_cast<uint64_t>(integer);
  char buffer[72];
  std::string body(buffer, std::to_chars(buffer, buffer + sizeof buffer, magnitude, base).ptr);
  std::string head = sign_of(integer < 0, spec);
  if (spec.alternate && base != 10) head += std::string("0") + type;
  if (type == 'X') {
    for (char& c : body) c = c >= 'a' && c <= 'f' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  if (spec.grouping) body = grouped(body, spec.grouping, base == 10 ? 3 : 4);
  return padded(heap, head, body, spec, '>');
}

std::string format_real(Heap& heap, double real, const FormatSpec& spec) {
  char type = spec.type;
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (upper) type = static_cast<char>(type - 'A' + 'a');
  std::string body;
  const double magnitude = std::fabs(real);
  if (!std::isfinite(real)) {
    body = std::isnan(real) ? "nan" : "inf";
    if (type == '%') body += '%';
  } else if (type == '%') {
    body = real_digits(magnitude * 100, spec, 'f') + "%";
  } else if (type == 0 && spec.precision < 0) {
    body = float_text(magnitude);
  } else if (type == 0 || type == 'n' || type == 'g') {
    body = real_digits(magnitude, spec, 'g');
    // Without a type, Python keeps one digit after the point.
    if (type == 0 && body.find_first_of(".e") == std::string::npos) body += ".0";
  } else if (type == 'e' || type == 'f') {
    body = real_digits(magnitude, spec, type);
  } else {
    refuse("Unknown format code '", spec.type, "' for object of type 'float'");
  }
  if (upper) {
    for (char& c : body) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  if (spec.grouping && std::isfinite(real)) body = grouped(body, spec.grouping, 3);
  return padded(heap, sign_of(std::signbit(real) && !std::isnan(real), spec), body, spec, '>');
}

std::string format_value(Heap& heap, const Value& value, std::string_view spec) {
  if (spec.empty()) return to_str(heap, value);
  if (value.is_string()) return format_text(heap, value.view(), parse_format_spec(spec));
  if (value.is_integral()) {
    return format_integer(heap, value.as_int(), parse_format_spec(spec));
  }
  if (value.is_number()) return format_real(heap, value.as_double(), parse_format_spec(spec));
  refuse("unsupported format string passed to ", type_name(value), ".__format__");
}

}  // namespace lumen::text::jinja
