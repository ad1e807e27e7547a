#include "lib/text/grammar/schema_pattern.h"

#include <algorithm>
#include <optional>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/text/grammar/intersection.h"
#include "lib/text/unicode.h"

namespace lumen::text::grammar {
namespace {

const CharSet kDigits = {{'0', '9'}};
const CharSet kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
// White space and line terminators of ECMA-262.
const CharSet kSpace = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                        {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                        {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharSet kNewlines = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

// What \d, \w or \s of Python have beside those of ECMA-262, or may have: characters that the
// tables do not know are among them.
CharSet beyond_ascii(char name) {
  if (name == 's') return {{0x1C, 0x1F}, {0x85, 0x85}};
  CharSet set;
  for (uint32_t c = 0x80; c <= 0x10FFFF; ++c) {
    const Category of = category(c);
    const bool is_one =
        of == Category::kCn || (name == 'd' ? of == Category::kNd : is_word(c) || is_number(c));
    if (!is_one) continue;
    if (!set.empty() && set.back().last + 1 == c) {
      set.back().last = c;
    } else {
      set.push_back({c, c});
    }
  }
  return set;
}

bool contains(const CharSet& set, uint32_t c) {
  for (const CharRange& range : set) {
    if (range.first <= c && c <= range.last) return true;
  }
  return false;
}

// The sum or product, where kUnbounded is more than every number.
uint32_t bounded(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, kUnbounded));
}

// A part of a pattern, with the characters that its texts have.
struct Piece {
  ExpressionId id;
  LengthRange length;
  std::optional<ExpressionId> repeated = std::nullopt;  // the character, if it is one, repeated
};

class PatternParser {
 public:
  PatternParser(RuleSet& rules, std::string_view text, const LengthRange& length)
      : rules_(rules), text_(text), length_(length) {}

  ExpressionId parse() {
    std::vector<ExpressionId> ways;
    do {
      ways.push_back(parse_alternative());
    } while (take('|'));
    if (pos_ < text_.size()) refuse_here();
    return rules_.choice(std::move(ways));
  }

 private:
  // What \d, \w, \s and . stand for: what they are in ECMA-262, or all that they are anywhere, as
  // in Python, where they have characters beyond ASCII, or only what they are everywhere.
  enum class Breadth { kExact, kAll, kLeast };

  ExpressionId parse_alternative() {
    const bool begins = take('^');
    std::vector<Condition> conditions;
    while (peek() == '(' && peek(1) == '?' && (peek(2) == '=' || peek(2) == '!')) {
      conditions.push_back(parse_look_ahead(begins));
    }
    const std::vector<Piece> pieces = parse_sequence(0);
    const bool ends = take('$');
    const Piece piece = joined(pieces);
    if (begins && ends && conditions.empty()) return of_length(pieces);
    const ExpressionId rest =
        ends ? piece.id : rules_.sequence({piece.id, characters(0, kUnbounded)});
    const auto behind_anything = [&](ExpressionId id) {
      return begins ? id : rules_.sequence({characters(0, kUnbounded), id});
    };
    const bool has_length = length_.least > piece.length.least || length_.most != kUnbounded;
    if (conditions.empty()) {
      const ExpressionId whole = behind_anything(rest);
      return has_length ? with_length(whole) : whole;
    }
    conditions.insert(conditions.begin(), {rest});
    if (has_length && !begins) refuse_length();
    if (has_length) conditions.push_back({of_any_kind(length_.least, length_.most)});
    return behind_anything(common(conditions));
  }

  ExpressionId characters(uint32_t least, uint32_t most) {
    return rules_.repeat(json_character(rules_, {{0, 0x10FFFF}}), least, most);
  }

  // The same in a condition, where any escape may be a character: the pattern says which are.
  ExpressionId of_any_kind(uint32_t least, uint32_t most) {
    const ExpressionId digit = rules_.chars({{'0', '9'}, {'a', 'f'}});
    const ExpressionId escaped =
        rules_.choice({rules_.chars(complement({{'u', 'u'}})),
                       rules_.sequence({rules_.literal("u"), rules_.repeat(digit, 4, 4)})});
    return rules_.repeat(rules_.choice({rules_.chars(complement({{'\\', '\\'}})),
                                        rules_.sequence({rules_.literal("\\"), escaped})}),
                         least, most);
  }

  ExpressionId common(const std::vector<Condition>& conditions) {
    const auto found = intersection(rules_, conditions, "pattern");
    if (!found) {
      refuse(ErrorKind::kUnsupported, 0,
             "the conditions together are too long; leave some out, and check the values yourself");
    }
    return *found;
  }

  // The texts of `whole` that are neither too short nor too long.
  ExpressionId with_length(ExpressionId whole) {
    const Condition conditions[] = {{whole}, {of_any_kind(length_.least, length_.most)}};
    const auto found = intersection(rules_, conditions, "pattern");
    if (!found) refuse_length();
    return *found;
  }

  // (?=…) or (?!…): what the rest of the text has to begin with, or not. What is excluded is all
  // that any program takes the pattern for: a line's end may stand behind its $ in Python.
  Condition parse_look_ahead(bool at_begin) {
    const bool is_excluded = peek(2) == '!';
    pos_ += 3;
    breadth_ = is_excluded ? Breadth::kAll : Breadth::kExact;
    std::vector<ExpressionId> ways;
    do {
      if (peek() == '^' && !at_begin) unsupported(pos_);
      take('^');
      std::vector<ExpressionId> parts = {joined(parse_sequence(1)).id};
      if (!take('$')) {
        parts.push_back(of_any_kind(0, kUnbounded));
      } else if (is_excluded) {
        parts.push_back(rules_.optional(json_character(rules_, kNewlines)));
      }
      ways.push_back(rules_.sequence(std::move(parts)));
    } while (take('|'));
    if (!take(')')) refuse_here();
    breadth_ = Breadth::kExact;
    return {rules_.choice(std::move(ways)), is_excluded};
  }

  [[noreturn]] void refuse(ErrorKind kind, size_t place, std::string_view what) const {
    fail(kind, "byte ", place, " of ", quoted(text_), ": ", what);
  }
  [[noreturn]] void unsupported(size_t place) const {
    size_t end = std::min(place + 2, text_.size());
    while (end < text_.size() && (text_[end] & 0xC0) == 0x80) ++end;
    refuse(ErrorKind::kUnsupported, place,
           str(quoted(text_.substr(place, end - place)),
               " is not supported here; write the pattern with characters, classes, groups, |, *, "
               "+, ?, {m,n}, and ^ and $ only at its ends"));
  }
  // Of a group that "(?" begins.
  [[noreturn]] void refuse_group(size_t place) const {
    const bool is_behind = peek() == '<' && (peek(1) == '=' || peek(1) == '!');
    if (!is_behind && peek() != '=' && peek() != '!') unsupported(place);
    refuse(ErrorKind::kUnsupported, place,
           str(quoted(text_.substr(place, is_behind ? 4 : 3)), ", a look ",
               is_behind ? "behind" : "ahead",
               is_behind ? ", is not supported" : ", is supported only at the beginning",
               "; leave this condition out, and check the values yourself"));
  }
  [[noreturn]] void refuse_here() const {
    if (pos_ < text_.size() && (text_[pos_] == '^' || text_[pos_] == '$')) unsupported(pos_);
    refuse(ErrorKind::kMalformed, pos_,
           pos_ < text_.size() ? "is not expected here" : "something is missing at the end");
  }

  [[noreturn]] void refuse_length() const {
    refuse(ErrorKind::kUnsupported, pos_,
           "minLength and maxLength beside such a pattern are not supported; write the length into "
           "the pattern");
  }

  // Of the texts of a whole alternative those that are neither too short nor too long: how often
  // one character comes decides it, if all else has one length.
  ExpressionId of_length(std::vector<Piece> pieces) {
    const Piece whole = joined(pieces);
    const LengthRange& found = whole.length;
    if (found.least >= length_.least && found.most <= length_.most) return whole.id;
    if (found.least > length_.most || found.most < length_.least) return rules_.choice({});
    Piece* varied = nullptr;
    for (Piece& piece : pieces) {
      if (piece.length.least == piece.length.most) continue;
      if (varied || !piece.repeated) return with_length(whole.id);
      varied = &piece;
    }
    const uint32_t others = found.least - varied->length.least;
    const uint32_t least = std::max(varied->length.least, std::max(length_.least, others) - others);
    const uint32_t most = length_.most == kUnbounded
                              ? varied->length.most
                              : std::min(varied->length.most, length_.most - others);
    varied->id = rules_.repeat(*varied->repeated, least, most);
    return joined(pieces).id;
  }

  char peek(size_t ahead = 0) const {
    return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0';
  }
  bool take(char c) {
    if (pos_ >= text_.size() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }

  Piece parse_choice(uint32_t depth) {
    if (depth > limits::kGrammarDepth / 4) {
      refuse(ErrorKind::kMalformed, pos_, "groups are nested too deep");
    }
    std::vector<ExpressionId> ways;
    LengthRange length = {kUnbounded, 0};
    do {
      const Piece way = joined(parse_sequence(depth));
      ways.push_back(way.id);
      length = {std::min(length.least, way.length.least), std::max(length.most, way.length.most)};
    } while (take('|'));
    return {rules_.choice(std::move(ways)), length};
  }

  std::vector<Piece> parse_sequence(uint32_t depth) {
    std::vector<Piece> pieces;
    while (const std::optional<Piece> part = parse_part(depth)) {
      pieces.push_back(parse_quantifier(*part));
    }
    return pieces;
  }

  // One after the other.
  Piece joined(const std::vector<Piece>& pieces) {
    std::vector<ExpressionId> parts;
    LengthRange length = {0, 0};
    for (const Piece& piece : pieces) {
      parts.push_back(piece.id);
      length = {bounded(uint64_t{length.least} + piece.length.least),
                bounded(uint64_t{length.most} + piece.length.most)};
    }
    return {parts.empty() ? rules_.literal("") : rules_.sequence(std::move(parts)), length};
  }

  std::optional<Piece> parse_part(uint32_t depth) {
    const size_t place = pos_;
    switch (peek()) {
      case '\0':
        if (pos_ < text_.size()) break;
        return std::nullopt;
      case '|':
      case ')':
      case '$':
      case '^':
        return std::nullopt;
      case '*':
      case '+':
      case '?':
        refuse(ErrorKind::kMalformed, place, "there is nothing to repeat");
      case '{':
      case '}':
      case ']':
        unsupported(place);
      case '(': {
        ++pos_;
        if (take('?') && !take(':')) refuse_group(place);
        const Piece inner = parse_choice(depth + 1);
        if (!take(')')) refuse_here();
        return inner;
      }
      case '[':
        return character(parse_class());
      case '.':
        ++pos_;
        return character(breadth_ == Breadth::kAll ? complement({{'\n', '\n'}})
                                                   : complement(kNewlines));
      default:
        break;
    }
    if (take('\\')) return character(parse_escape(place));
    const uint32_t c = next_code_point(text_, pos_);
    return character({{c, c}});
  }

  Piece character(const CharSet& set) {
    const ExpressionId one = json_character(rules_, set);
    return {one, {1, 1}, one};
  }

  // What a backslash begins.
  CharSet parse_escape(size_t place) {
    if (pos_ >= text_.size()) refuse_here();
    const char c = text_[pos_++];
    const auto one = [](uint32_t value) { return CharSet{{value, value}}; };
    switch (c) {
      case 'd':
      case 'D':
      case 'w':
      case 'W':
      case 's':
      case 'S':
        return named_class(c);
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return one(parse_hex(place, 2));
      case 'u':
        return one(parse_hex(place, 4));
      default:
        break;
    }
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_digit = c >= '0' && c <= '9';
    if (is_letter || is_digit || static_cast<uint8_t>(c) >= 0x80) unsupported(place);
    return one(static_cast<uint8_t>(c));
  }

  // \d, \w, \s, or with a capital letter all other characters.
  CharSet named_class(char name) const {
    const bool is_negated = name < 'a';
    const char of = static_cast<char>(name | 0x20);
    const Breadth breadth = is_negated && breadth_ != Breadth::kExact
                                ? breadth_ == Breadth::kAll ? Breadth::kLeast : Breadth::kAll
                                : breadth_;
    CharSet set = of == 'd' ? kDigits : of == 'w' ? kWord : kSpace;
    if (breadth == Breadth::kAll) {
      const CharSet more = beyond_ascii(of);
      set.insert(set.end(), more.begin(), more.end());
    }
    return is_negated ? complement(set) : set;
  }

  uint32_t parse_hex(size_t place, size_t digits) {
    int64_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++pos_) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        value = value * 16 + (c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value * 16 + (lower - 'a' + 10);
      } else {
        unsupported(place);
      }
    }
    if (value >= 0xD800 && value < 0xE000) unsupported(place);
    return static_cast<uint32_t>(value);
  }

  CharSet parse_class() {
    const size_t place = pos_++;
    const bool negated = take('^');
    const Breadth before = breadth_;
    if (negated && breadth_ == Breadth::kAll) breadth_ = Breadth::kLeast;
    CharSet set;
    while (!take(']')) {
      if (pos_ >= text_.size()) refuse(ErrorKind::kMalformed, place, "the class is not closed");
      const size_t here = pos_;
      const CharSet first = class_member();
      const bool is_range = peek() == '-' && peek(1) != ']' && pos_ + 1 < text_.size();
      if (!is_range) {
        set.insert(set.end(), first.begin(), first.end());
        continue;
      }
      ++pos_;
      const CharSet last = class_member();
      const bool are_single = first.size() == 1 && last.size() == 1 &&
                              first[0].first == first[0].last && last[0].first == last[0].last;
      if (!are_single) unsupported(here);
      if (first[0].first > last[0].first) {
        refuse(ErrorKind::kMalformed, here, "the range ends before it begins");
      }
      set.push_back({first[0].first, last[0].first});
    }
    breadth_ = before;
    return negated ? complement(set) : set;
  }

  CharSet class_member() {
    const size_t place = pos_;
    if (take('\\')) {
      if (peek() == 'b' && pos_ < text_.size()) return ++pos_, CharSet{{'\b', '\b'}};
      return parse_escape(place);
    }
    const uint32_t c = next_code_point(text_, pos_);
    return {{c, c}};
  }

  Piece parse_quantifier(Piece part) {
    const size_t place = pos_;
    LengthRange times = {1, 1};
    if (take('*')) {
      times = {0, kUnbounded};
    } else if (take('+')) {
      times = {1, kUnbounded};
    } else if (take('?')) {
      times = {0, 1};
    } else if (take('{')) {
      times.least = parse_count(place);
      times.most = times.least;
      if (take(',')) times.most = peek() == '}' ? kUnbounded : parse_count(place);
      if (!take('}')) unsupported(place);
      if (times.most < times.least) {
        refuse(ErrorKind::kMalformed, place, "the repetition ends before it begins");
      }
    } else {
      return part;
    }
    take('?');  // lazy: the same texts
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') {
      refuse(ErrorKind::kMalformed, pos_, "there is nothing to repeat");
    }
    part.id = rules_.repeat(part.id, times.least, times.most);
    part.length = {bounded(uint64_t{part.length.least} * times.least),
                   bounded(uint64_t{part.length.most} * times.most)};
    return part;
  }

  uint32_t parse_count(size_t place) {
    if (peek() < '0' || peek() > '9') unsupported(place);
    uint64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = std::min<uint64_t>(10 * value + static_cast<uint64_t>(text_[pos_++] - '0'), 1u << 31);
    }
    if (value > limits::kGrammarPositions) {
      refuse(ErrorKind::kMalformed, place,
             str("more than ", limits::kGrammarPositions, " repetitions, the limit"));
    }
    return static_cast<uint32_t>(value);
  }

  RuleSet& rules_;
  const std::string_view text_;
  const LengthRange length_;
  size_t pos_ = 0;
  Breadth breadth_ = Breadth::kExact;
};

}  // namespace

ExpressionId json_character(RuleSet& rules, const CharSet& set) {
  constexpr CharRange kEscaped[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  CharSet rest = complement(set);
  rest.insert(rest.end(), std::begin(kEscaped), std::end(kEscaped));
  const CharSet plain = complement(rest);
  std::vector<ExpressionId> ways;
  if (!plain.empty()) ways.push_back(rules.chars(plain));
  for (const CharRange& range : kEscaped) {
    for (uint32_t c = range.first; c <= range.last; ++c) {
      if (!contains(set, c)) continue;
      constexpr std::string_view kShort = "\"\"\\\\\bb\ff\nn\rr\tt";
      std::string escape = "\\";
      const size_t at = kShort.find(static_cast<char>(c));
      if (c != 0 && at != kShort.npos) {
        escape += kShort[at | 1];
      } else {
        constexpr char kHex[] = "0123456789abcdef";
        escape += {'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
      }
      ways.push_back(rules.literal(escape));
    }
  }
  return rules.choice(std::move(ways));
}

ExpressionId json_pattern(RuleSet& rules, std::string_view pattern, const LengthRange& length) {
  return PatternParser(rules, pattern, length).parse();
}

}  // namespace lumen::text::grammar
