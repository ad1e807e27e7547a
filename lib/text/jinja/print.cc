#include <charconv>
#include <cmath>

#include "lib/base/limits.h"
#include "lib/text/jinja/formatting.h"
#include "lib/text/jinja/interpreter.h"
#include "lib/text/jinja/python_text.h"

namespace lumen::text::jinja {

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const double magnitude = std::fabs(value);
  // Python prints exponents below 1e-4 and from 1e16 on.
  const bool scientific = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr;
  std::string text(buffer, end);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

namespace {

void append_items(TextBuilder& out, const Values& items, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(out, items[i], depth + 1);
  }
}

void append_dict(TextBuilder& out, const Dict& dict, int depth) {
  out.append('{');
  bool first = true;
  for (const auto& [key, value] : dict.items()) {
    if (!first) out.append(", ");
    first = false;
    append_repr(out, key, depth + 1);
    out.append(": ");
    append_repr(out, value, depth + 1);
  }
  out.append('}');
}

void append_sequence(TextBuilder& out, const Sequence& sequence, int depth) {
  const Values& items = sequence.items();
  switch (sequence.flavour()) {
    case Sequence::Flavour::kList:
      out.append('[');
      append_items(out, items, depth);
      out.append(']');
      return;
    case Sequence::Flavour::kTuple:
    case Sequence::Flavour::kGroup:
      out.append('(');
      append_items(out, items, depth);
      out.append(items.size() == 1 ? ",)" : ")");
      return;
    case Sequence::Flavour::kRange: {
      const Sequence::Bounds& b = sequence.bounds;
      out.append(b.step == 1 ? str("range(", b.start, ", ", b.stop, ")")
                             : str("range(", b.start, ", ", b.stop, ", ", b.step, ")"));
      return;
    }
    case Sequence::Flavour::kKeys:
    case Sequence::Flavour::kValues:
    case Sequence::Flavour::kItems:
      out.append(sequence.flavour() == Sequence::Flavour::kKeys     ? "dict_keys(["
                 : sequence.flavour() == Sequence::Flavour::kValues ? "dict_values(["
                                                                    : "dict_items([");
      append_items(out, items, depth);
      out.append("])");
      return;
    case Sequence::Flavour::kGenerator:
      out.append("<generator object>");
      return;
  }
}

}  // namespace

void append_str(TextBuilder& out, const Value& value) {
  if (value.is_string()) {
    out.append(value.view());
  } else if (!value.is_undefined()) {
    append_repr(out, value);
  }
}

void append_repr(TextBuilder& out, const Value& value, int depth) {
  if (depth > limits::kTemplateDepth) {
    refuse("a value to print is nested deeper than ", limits::kTemplateDepth, " levels");
  }
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      out.append("Undefined");
      return;
    case Kind::kNone:
      out.append("None");
      return;
    case Kind::kBool:
      out.append(value.as_bool() ? "True" : "False");
      return;
    case Kind::kInt:
      out.append(str(value.as_int()));
      return;
    case Kind::kFloat:
      out.append(float_text(value.as_double()));
      return;
    case Kind::kString: {
      const bool markup = value.string().markup();
      if (markup) out.append("Markup(");
      append_quoted(out, value.view());
      if (markup) out.append(")");
      return;
    }
    case Kind::kSequence:
      append_sequence(out, value.sequence(), depth);
      return;
    case Kind::kDict:
      append_dict(out, value.dict(), depth);
      return;
    case Kind::kNamespace:
      out.append("<Namespace ");
      append_dict(out, value.as<Namespace>().attributes(), depth);
      out.append(">");
      return;
    case Kind::kCallable:
      out.append("<" + value.as<Callable>().description() + ">");
      return;
    case Kind::kLoop:
      out.append(value.as<Loop>().description());
      return;
    case Kind::kCycler:
      out.append("<Cycler>");
      return;
    case Kind::kJoiner:
      out.append("<Joiner>");
      return;
  }
}

std::string to_str(Heap& heap, const Value& value) {
  TextBuilder out(heap);
  append_str(out, value);
  return out.take();
}

std::string to_repr(Heap& heap, const Value& value) {
  TextBuilder out(heap);
  append_repr(out, value);
  return out.take();
}

Value as_text(Heap& heap, const Value& value) {
  return value.is_string() ? value : Value::text(heap, to_str(heap, value));
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Value escape_html(Heap& heap, const Value& value) {
  if (value.is_string() && value.string().markup()) return value;
  const std::string text = to_str(heap, value);
  heap.check(5 * text.size());
  heap.touch(5 * text.size());
  return make_markup(heap, escape_html(text));
}

Value concatenate(Heap& heap, const Value& a, const Value& b) {
  const bool markup = a.string().markup() || b.string().markup();
  const Value left = markup ? escape_html(heap, a) : a;
  const Value right = markup ? escape_html(heap, b) : b;
  TextBuilder out(heap);
  out.append(left.view());
  out.append(right.view());
  return Value::object(heap.make<String>(out.take(), markup));
}

}  // namespace lumen::text::jinja
