// printf-style formatting: `'%s' % value`.
#include <cmath>

#include "lib/text/jinja/format_spec.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/operators.h"

namespace lumen::text::jinja {

namespace {

class PercentFormatter {
 public:
  PercentFormatter(Heap& heap, const Value& format, const Value& values)
      : heap_(heap),
        text_(format.view()),
        markup_(format.string().markup()),
        values_(values),
        out_(heap) {
    tuple_ = values.is_sequence() && values.sequence().is_tuple();
  }

  std::string run() {
    while (pos_ < text_.size()) {
      const size_t percent = std::min(text_.find('%', pos_), text_.size());
      out_.append(text_.substr(pos_, percent - pos_));
      pos_ = percent;
      if (pos_ < text_.size()) conversion();
    }
    const bool mapping = values_.is_dict() || (values_.is_sequence() && !tuple_);
    if (tuple_ ? used_ < values_.sequence().items().size() : used_ == 0 && !mapping) {
      refuse("not all arguments converted during string formatting");
    }
    return out_.take();
  }

 private:
  char peek() const {
    if (pos_ >= text_.size()) refuse("incomplete format");
    return text_[pos_];
  }

  Value next() {
    if (!tuple_ && used_ == 0) {
      used_ = 1;
      return values_;
    }
    if (!tuple_ || used_ >= values_.sequence().items().size()) {
      refuse("not enough arguments for format string");
    }
    return values_.sequence().items()[used_++];
  }

  Value named() {
    if (!values_.is_dict()) refuse("format requires a mapping");
    const size_t begin = ++pos_;
    for (int depth = 1; depth > 0; ++pos_) {
      if (pos_ >= text_.size()) refuse("incomplete format key");
      depth += text_[pos_] == '(' ? 1 : text_[pos_] == ')' ? -1 : 0;
    }
    const std::string_view key = text_.substr(begin, pos_ - 1 - begin);
    const Value* value = values_.dict().find(key);
    if (!value) refuse("the mapping has no key ", lumen::quoted(key));
    used_ = 1;
    return *value;
  }

  int64_t number() {
    if (peek() == '*') {
      ++pos_;
      return to_index(next(), "* of a format");
    }
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (text_[pos_++] - '0');
      if (value > (int64_t{1} << 31)) refuse("width too big");
    }
    return value;
  }

  void conversion() {
    ++pos_;
    Value value;
    if (peek() == '(') value = named();
    FormatSpec spec;
    bool zero = false, left = false;
    for (;; ++pos_) {
      const char flag = peek();
      if (flag == '-') {
        left = true;
      } else if (flag == '0') {
        zero = true;
      } else if (flag == '#') {
        spec.alternate = true;
      } else if (flag == '+' || (flag == ' ' && spec.sign != '+')) {
        spec.sign = flag;
      } else if (flag != ' ') {
        break;
      }
    }
    spec.width = number();
    if (spec.width < 0) {
      left = true;
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++pos_;
      spec.precision = std::max<int64_t>(number(), 0);
      if (spec.precision > 4096) refuse("the precision ", spec.precision, " is too large");
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++pos_;
    const char type = peek();
    ++pos_;
    if (type == '%') return out_.append('%');
    if (!value.given()) value = next();
    spec.align = left ? '<' : '>';
    write(value, type, spec, zero && !left);
  }

  std::string escaped(std::string text) const {
    return markup_ ? escape_html(text) : std::move(text);
  }

  void write(const Value& value, char type, FormatSpec& spec, bool zero) {
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        const bool safe = type == 's' && value.is_string() && value.string().markup();
        std::string text = type == 's' ? to_str(heap_, value) : to_repr(heap_, value);
        return out_.append(format_text(heap_, safe ? text : escaped(text), spec));
      }
      case 'c':
        if (value.is_string() && value.string().length() == 1) {
          return out_.append(format_text(heap_, value.view(), spec));
        }
        spec.type = 'c';
        return out_.append(format_integer(heap_, to_index(value, "%c"), spec));
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return write_integer(value, type, spec, zero);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.is_undefined()) refuse_undefined(value);
        if (!value.is_number()) refuse("must be real number, not ", type_name(value));
        spec.type = type;
        if (zero && std::isfinite(value.as_double())) zero_fill(spec);
        return out_.append(format_real(heap_, value.as_double(), spec));
      default:
        refuse("unsupported format character ", lumen::quoted(std::string(1, type)));
    }
  }

  static void zero_fill(FormatSpec& spec) {
    spec.fill = "0";
    spec.align = '=';
  }

  void write_integer(const Value& value, char type, FormatSpec& spec, bool zero) {
    if (value.is_undefined()) refuse_undefined(value);
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (!value.is_integral() && !(decimal && value.is_number())) {
      refuse("%", type, " format: a number is required, not ", type_name(value));
    }
    if (!value.is_integral() && !(std::fabs(value.as_double()) < 9.2e18)) {
      refuse("cannot convert float ", float_text(value.as_double()), " to integer");
    }
    const int64_t integer =
        value.is_integral() ? value.as_int() : static_cast<int64_t>(value.as_double());
    spec.type = decimal ? 'd' : type;
    if (zero) zero_fill(spec);
    if (spec.precision >= 0) {
      // A precision is the least number of digits.
      FormatSpec digits;
      digits.type = spec.type;
      digits.sign = spec.sign;
      digits.alternate = spec.alternate;
      const bool signed_text = integer < 0 || spec.sign != '-';
      const int64_t prefix = spec.alternate && !decimal ? 2 : 0;
      digits.width = spec.precision + (signed_text ? 1 : 0) + prefix;
      zero_fill(digits);
      const std::string text = format_integer(heap_, integer, digits);
      FormatSpec outer;
      outer.width = spec.width;
      outer.align = spec.align == '=' ? '>' : spec.align;
      return out_.append(format_text(heap_, text, outer));
    }
    out_.append(format_integer(heap_, integer, spec));
  }

  Heap& heap_;
  std::string_view text_;
  bool markup_;
  const Value& values_;
  bool tuple_ = false;
  size_t pos_ = 0;
  size_t used_ = 0;
  TextBuilder out_;
};

}  // namespace

Value percent_format(Heap& heap, const Value& format, const Value& values) {
  std::string text = PercentFormatter(heap, format, values).run();
  return Value::object(heap.make<String>(std::move(text), format.string().markup()));
}

}  // namespace lumen::text::jinja
