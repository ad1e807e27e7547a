// From Oniguruma's syntax (https://github.com/kkos/oniguruma/blob/master/doc/RE) to PCRE2's.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/text/regex.h"
#include "lib/text/unicode_data.h"

namespace lumen::text {
namespace {

constexpr std::string_view kSpace = "\\p{White_Space}";
// The superscripts and fractions of Latin-1 are word characters to Oniguruma.
constexpr std::string_view kWord =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
constexpr std::string_view kHex = "0-9a-fA-F";
constexpr int kMaxSetDepth = 8;

// What is in a POSIX class, and the general categories of what is in it of the characters that
// PCRE2 may not know.
struct PosixClass {
  std::string_view name, items;
  std::vector<const char*> young{};
};
const std::vector<PosixClass>& posix_classes() {
  static const std::vector<PosixClass> classes = {
      {"alnum", "\\p{Alphabetic}\\p{Nd}", {"L", "Nl", "Nd"}},
      {"alpha", "\\p{Alphabetic}", {"L", "Nl"}},
      {"ascii", "\\x{0}-\\x{7F}"},
      {"blank", "\\p{Zs}\\t"},
      {"cntrl", "\\p{Cc}"},
      {"digit", "\\p{Nd}", {"Nd"}},
      {"graph", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}", {"L", "M", "N", "P", "S", "Cf"}},
      {"lower", "\\p{Lowercase}", {"Ll"}},
      {"print",
       "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}\\p{Zs}",
       {"L", "M", "N", "P", "S", "Cf"}},
      {"punct", "\\p{P}\\p{S}", {"P", "S"}},
      {"space", kSpace},
      {"upper", "\\p{Uppercase}", {"Lu"}},
      {"word", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}", {"L", "Nl", "M", "Nd", "Pc"}},
      {"xdigit", kHex},
  };
  return classes;
}

// PCRE2 knows general categories by their short names only.
constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kCategories = {{
    {"letter", "L"},
    {"uppercase_letter", "Lu"},
    {"lowercase_letter", "Ll"},
    {"titlecase_letter", "Lt"},
    {"modifier_letter", "Lm"},
    {"other_letter", "Lo"},
    {"mark", "M"},
    {"nonspacing_mark", "Mn"},
    {"spacing_mark", "Mc"},
    {"enclosing_mark", "Me"},
    {"number", "N"},
    {"decimal_number", "Nd"},
    {"letter_number", "Nl"},
    {"other_number", "No"},
    {"punctuation", "P"},
    {"symbol", "S"},
    {"separator", "Z"},
    {"space_separator", "Zs"},
    {"control", "Cc"},
    {"other", "C"},
}};

// In the order of Category.
constexpr std::array<std::string_view, 30> kCategoryNames = {
    "Cn", "Cc", "Cf", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl",
    "No", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"};

std::string hex(uint32_t number) {
  char digits[9] = {};
  const char* end = std::to_chars(digits, digits + 8, number, 16).ptr;
  return {digits, static_cast<size_t>(end - digits)};
}

// Ranges for a set of those characters of a general category (L, Lu) that PCRE2 may not know yet.
std::string young_ranges(std::string_view category) {
  std::string out;
  for (size_t i = 0; i < unicode_data::young_size; i += 3) {
    const uint32_t* young = unicode_data::young + i;
    const std::string_view of = kCategoryNames[young[2]];
    if (of.substr(0, category.size()) != category) continue;
    out += str("\\x{", hex(young[0]), "}-\\x{", hex(young[1]), "}");
  }
  return out;
}

// Those of the word characters.
const std::string& young_word_ranges() {
  static const std::string ranges = [] {
    std::string all;
    for (const char* category : {"L", "Nl", "M", "Nd", "Pc"}) all += young_ranges(category);
    return all;
  }();
  return ranges;
}

bool is_category(std::string_view name) {
  return !name.empty() && name.size() <= 2 && name[0] != 'C' &&
         std::any_of(kCategoryNames.begin(), kCategoryNames.end(),
                     [&](std::string_view each) { return each.substr(0, name.size()) == name; });
}

bool is_script(std::string_view name) {
  const std::string pattern = str("\\p{sc:", name, "}");
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Translator {
 public:
  Translator(std::string_view pattern, bool young)
      : in_(pattern), young_(young), word_(str(kWord, young ? young_word_ranges() : "")) {}

  std::string run() {
    std::string out;
    while (pos_ < in_.size()) {
      if (in_[pos_] == '\\') {
        escape(out);
      } else if (in_[pos_] == '[') {
        out += set(0);
      } else if (in_.substr(pos_, 2) == "(?") {
        group_options(out);
      } else {
        out += in_[pos_++];
      }
    }
    return out;
  }

 private:
  [[noreturn]] void unsupported(std::string_view what) const {
    fail(ErrorKind::kUnsupported, "pattern ", quoted(in_), ", character ", pos_, ": ", what,
         " is not supported");
  }
  [[noreturn]] void malformed(std::string_view what) const {
    fail(ErrorKind::kMalformed, "pattern ", quoted(in_), ", character ", pos_, ": ", what);
  }

  // Copies "(?" and option letters; Ruby's m is PCRE's s (the dot matches newlines).
  void group_options(std::string& out) {
    out += "(?";
    pos_ += 2;
    size_t end = pos_;
    while (end < in_.size() && std::string_view("imx-").find(in_[end]) != std::string_view::npos) {
      ++end;
    }
    if (end < in_.size() && (in_[end] == ':' || in_[end] == ')')) {
      for (; pos_ < end; ++pos_) out += in_[pos_] == 'm' ? 's' : in_[pos_];
    }
  }

  // An escape outside a set.
  void escape(std::string& out) {
    if (pos_ + 1 == in_.size()) malformed("the pattern ends in a backslash");
    const char c = in_[pos_ + 1];
    const std::string word = str("[", word_, "]");
    if (c == 'b' || c == 'B') {
      const std::string edge = str("(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, ")");
      out += c == 'b' ? str("(?:", edge, ")") : str("(?!", edge, ")");
      pos_ += 2;
    } else if (c == 'w' || c == 'W' || c == 'h' || c == 'H') {
      const bool is_word = c == 'w' || c == 'W';
      out += str(c == 'W' || c == 'H' ? "[^" : "[", is_word ? std::string_view(word_) : kHex, "]");
      pos_ += 2;
    } else {
      shared_escape(out, false);
    }
  }

  // An escape that is the same inside and outside a set.
  void shared_escape(std::string& out, bool in_set) {
    const char c = in_[pos_ + 1];
    if (c == 's') {
      out += kSpace;
      pos_ += 2;
    } else if (c == 'S') {
      out += "\\P{White_Space}";
      pos_ += 2;
    } else if (c == 'u') {
      if (in_.size() - pos_ < 6) malformed("expected four hex digits after \\u");
      out += str("\\x{", in_.substr(pos_ + 2, 4), "}");
      pos_ += 6;
    } else if (c == 'p' || c == 'P') {
      property(out, in_set);
    } else {
      out += '\\';
      out += c;
      pos_ += 2;
    }
  }

  void property(std::string& out, bool in_set) {
    bool negated = in_[pos_ + 1] == 'P';
    const std::string_view sign = in_.substr(pos_, 2);
    pos_ += 2;
    if (pos_ == in_.size() || in_[pos_] != '{') {
      out += sign;
      return;
    }
    const size_t end = in_.find('}', pos_);
    if (end == std::string_view::npos) malformed("\\p{ is not closed");
    std::string_view name = in_.substr(pos_ + 1, end - pos_ - 1);
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string lower;
    for (const char c : name) {
      lower += static_cast<char>(c == ' ' ? '_' : c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    for (const auto& [long_name, short_name] : kCategories) {
      if (lower == long_name) name = short_name;
    }
    pos_ = end + 1;
    const std::string young = young_ && is_category(name) ? young_ranges(name) : "";
    if (!young.empty() && !(negated && in_set)) {
      const std::string items = str("\\p{", name, "}", young);
      out += in_set ? items : str(negated ? "[^" : "[", items, "]");
      return;
    }
    // By itself a script's name would stand for the characters that are also used with it.
    out += str(negated ? "\\P{" : "\\p{", is_script(name) ? "sc:" : "", name, '}');
  }

  // A set at '[': PCRE2 text that matches one character of it.
  std::string set(int depth) {
    if (depth > kMaxSetDepth) malformed("sets are nested too deeply");
    ++pos_;
    const bool negated = pos_ < in_.size() && in_[pos_] == '^';
    if (negated) ++pos_;
    std::vector<std::string> operands;  // of &&
    std::string items, nested;          // nested: a set that is an operand of its own
    const auto finish_operand = [&] {
      if (!nested.empty() && !items.empty()) unsupported("a union with a nested set");
      operands.push_back(nested.empty() ? str('[', items, ']') : nested);
      items.clear();
      nested.clear();
    };
    for (bool first = true;; first = false) {
      if (pos_ >= in_.size()) malformed("a set is not closed");
      const char c = in_[pos_];
      if (c == ']' && !first) {
        break;
      } else if (c == '\\') {
        set_escape(items);
      } else if (in_.substr(pos_, 2) == "[:") {
        posix_class(items, nested);
      } else if (c == '[') {
        const std::string inner = set(depth + 1);
        if (inner.substr(0, 2) == "[^" || inner[0] != '[') {
          if (!nested.empty()) unsupported("a union of nested sets");
          nested = inner;
        } else {
          items += inner.substr(1, inner.size() - 2);
        }
      } else if (in_.substr(pos_, 2) == "&&") {
        finish_operand();
        pos_ += 2;
      } else {
        if (c == ']') items += '\\';
        items += c;
        ++pos_;
      }
    }
    ++pos_;
    if (operands.empty() && nested.empty()) return str(negated ? "[^" : "[", items, ']');
    finish_operand();
    std::string all;
    for (size_t i = 0; i + 1 < operands.size(); ++i) all += str("(?=", operands[i], ")");
    all += operands.back();
    return negated ? str("(?:(?!", all, ")(?s:.))") : str("(?:", all, ")");
  }

  // [:NAME:] or [:^NAME:] in a set.
  void posix_class(std::string& items, std::string& nested) {
    const size_t end = in_.find(":]", pos_);
    if (end == std::string_view::npos) malformed("[: is not closed");
    std::string_view name = in_.substr(pos_ + 2, end - pos_ - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    const auto found = std::ranges::find(posix_classes(), name, &PosixClass::name);
    if (found == posix_classes().end()) unsupported(str("the class ", quoted(name)));
    pos_ = end + 2;
    std::string all(found->items);
    if (young_) {
      for (const char* category : found->young) all += young_ranges(category);
    }
    if (!negated) {
      items += all;
      return;
    }
    if (!nested.empty()) unsupported("a union of nested sets");
    nested = str("[^", all, ']');
  }

  void set_escape(std::string& items) {
    if (pos_ + 1 >= in_.size()) malformed("the pattern ends in a backslash");
    const char c = in_[pos_ + 1];
    if (c == 'W' || c == 'H') unsupported(str('\\', c, " in a set"));
    if (c == 'w' || c == 'h') {
      items += c == 'w' ? std::string_view(word_) : kHex;
      pos_ += 2;
    } else {
      shared_escape(items, true);
    }
  }

  std::string_view in_;
  bool young_;
  std::string word_;  // word characters, for a set
  size_t pos_ = 0;
};

}  // namespace

std::string translate_oniguruma(std::string_view pattern, bool young) {
  return Translator(pattern, young).run();
}

}  // namespace lumen::text
