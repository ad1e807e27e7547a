#include "lib/text/grammar.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/text/grammar/automaton.h"

namespace lumen::text {
namespace {

using grammar::CharRange;
using grammar::CharSet;
using grammar::ExpressionId;
using grammar::kUnbounded;
using grammar::RuleId;
using grammar::RuleSet;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

class GbnfParser {
 public:
  explicit GbnfParser(std::string_view text) : text_(text) {}

  RuleSet parse(RuleId& root) {
    skip_blanks(true);
    while (pos_ < text_.size()) {
      parse_rule();
      skip_blanks(true);
    }
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined)
        refuse(rule.place, "rule ", quoted(name), " is used but not defined", hint(name));
    }
    const auto found = rules_.find("root");
    if (found == rules_.end()) {
      refuse(text_.size(), "there is no rule 'root', which the text is derived from");
    }
    root = found->second.id;
    return std::move(set_);
  }

 private:
  struct Rule {
    RuleId id;
    size_t place;  // where it was first named
    bool defined = false;
  };

  template <typename... Parts>
  [[noreturn]] void refuse(size_t place, const Parts&... parts) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < place && i < text_.size(); ++i) {
      const auto byte = static_cast<uint8_t>(text_[i]);
      if (byte == '\n') {
        ++line;
        column = 1;
      } else if ((byte & 0xC0) != 0x80) {
        ++column;
      }
    }
    fail(ErrorKind::kMalformed, "line ", line, ", column ", column, ": ", parts...);
  }

  std::string hint(std::string_view name) const {
    std::vector<std::string> defined;
    for (const auto& [other, rule] : rules_) {
      if (rule.defined) defined.push_back(other);
    }
    const std::string near = nearest(name, defined);
    return near.empty() ? "" : str("; did you mean ", near, "?");
  }

  // What stands at `place`, for messages.
  std::string found_at(size_t place) const {
    if (place >= text_.size()) return "the end of the grammar";
    if (text_[place] == '\n' || text_[place] == '\r') return "the end of the line";
    size_t end = place;
    next_code_point(text_, end);
    return quoted(text_.substr(place, end - place));
  }

  char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
  bool take(char c) {
    if (peek() != c || pos_ >= text_.size()) return false;
    ++pos_;
    return true;
  }

  void skip_blanks(bool newlines) {
    while (pos_ < text_.size()) {
      const char c = text_[pos_];
      if (c == '#') {
        pos_ = std::min(text_.find('\n', pos_), text_.size());
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++pos_;
      } else {
        return;
      }
    }
  }

  std::string_view take_name() {
    const size_t begin = pos_;
    while (pos_ < text_.size() && is_name_character(text_[pos_])) ++pos_;
    return text_.substr(begin, pos_ - begin);
  }

  Rule& rule_named(std::string_view name, size_t place) {
    auto found = rules_.find(name);
    if (found == rules_.end()) {
      const RuleId id = set_.declare(std::string(name));
      found = rules_.emplace(std::string(name), Rule{id, place}).first;
    }
    return found->second;
  }

  void parse_rule() {
    const size_t place = pos_;
    const std::string_view name = take_name();
    if (name.empty()) refuse(pos_, "expected the name of a rule, found ", found_at(pos_));
    skip_blanks(false);
    if (text_.substr(pos_, 3) != "::=") {
      refuse(pos_, "expected ::= after the name ", quoted(name), ", found ", found_at(pos_));
    }
    pos_ += 3;
    skip_blanks(true);
    if (rule_named(name, place).defined) {
      refuse(place, "rule ", quoted(name), " is defined a second time");
    }
    const ExpressionId body = parse_choice(0);
    Rule& rule = rule_named(name, place);
    rule.defined = true;
    set_.define(rule.id, body);
    if (pos_ < text_.size() && peek() != '\n' && peek() != '\r') {
      refuse(pos_, "expected an expression or the end of the line, found ", found_at(pos_));
    }
  }

  // Whether an alternative follows; the next line may begin with it.
  bool take_bar() {
    const size_t before = pos_;
    skip_blanks(true);
    if (take('|')) return skip_blanks(true), true;
    pos_ = before;
    return false;
  }

  ExpressionId parse_choice(uint32_t depth) {
    if (depth > limits::kGrammarDepth) {
      refuse(pos_, "groups are nested more than ", limits::kGrammarDepth, " deep, the limit");
    }
    std::vector<ExpressionId> alternatives;
    do alternatives.push_back(parse_sequence(depth));
    while (take_bar());
    return set_.choice(std::move(alternatives));
  }

  ExpressionId parse_sequence(uint32_t depth) {
    std::vector<ExpressionId> parts;
    for (;;) {
      skip_blanks(depth > 0);
      const size_t place = pos_;
      const std::optional<ExpressionId> part = parse_part(depth);
      if (!part) break;
      parts.push_back(parse_repetitions(*part, place));
    }
    return parts.empty() ? set_.literal("") : set_.sequence(std::move(parts));
  }

  // A literal, class, name or group; nothing where none begins.
  std::optional<ExpressionId> parse_part(uint32_t depth) {
    const size_t place = pos_;
    if (take('"')) return parse_literal(place);
    if (take('[')) return parse_class(place);
    if (take('.')) return set_.chars({{0, 0x10FFFF}});
    if (take('(')) {
      skip_blanks(true);
      const ExpressionId inner = parse_choice(depth + 1);
      skip_blanks(true);
      if (!take(')')) {
        refuse(pos_, "expected ) for the group that begins in ", line_of(place), ", found ",
               found_at(pos_));
      }
      return inner;
    }
    if (peek() == '<' || peek() == '!') {
      refuse(place, "tokens, like <think> or !<[1000]>, are not supported: write their texts");
    }
    if (!is_name_character(peek()) || pos_ >= text_.size()) return std::nullopt;
    return set_.reference(rule_named(take_name(), place).id);
  }

  std::string line_of(size_t place) const {
    return str("line ",
               1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(place), '\n'));
  }

  ExpressionId parse_literal(size_t place) {
    std::string bytes;
    while (!take('"')) {
      if (pos_ >= text_.size() || peek() == '\n') {
        refuse(place, "this literal has no closing \"; a newline in it is written \\n");
      }
      append_utf8(bytes, parse_character());
    }
    return set_.literal(bytes);
  }

  ExpressionId parse_class(size_t place) {
    const bool negated = take('^');
    CharSet set;
    while (!take(']')) {
      if (pos_ >= text_.size() || peek() == '\n') refuse(place, "this class has no closing ]");
      const size_t here = pos_;
      const uint32_t first = parse_character();
      uint32_t last = first;
      if (peek() == '-' && pos_ + 1 < text_.size() && text_[pos_ + 1] != ']') {
        ++pos_;
        last = parse_character();
        if (last < first) {
          refuse(here, "the range ", quoted(text_.substr(here, pos_ - here)),
                 " ends before it begins");
        }
      }
      set.push_back({first, last});
    }
    if (negated) set = complement(set);
    if (normalized(set).empty()) refuse(place, "this class has no character, so nothing matches");
    return set_.chars(std::move(set));
  }

  // One character of a literal or class, perhaps as an escape.
  uint32_t parse_character() {
    const size_t place = pos_;
    if (!take('\\')) return next_code_point(text_, pos_);
    const char c = peek();
    ++pos_;
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '"':
      case '\\':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
        return static_cast<uint8_t>(c);
      case 'x':
        return parse_hex(place, 2);
      case 'u':
        return parse_hex(place, 4);
      case 'U':
        return parse_hex(place, 8);
      default:
        refuse(place, "unknown escape \\", pos_ > text_.size() ? "" : printable({&c, 1}),
               "; there are \\n, \\r, \\t, \\\", \\\\, \\[, \\], \\xHH, \\uHHHH and \\UHHHHHHHH");
    }
  }

  uint32_t parse_hex(size_t place, size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const int digit = hex_value(peek());
      if (pos_ >= text_.size() || digit < 0) {
        refuse(place, "expected ", digits, " hexadecimal digits after ", text_.substr(place, 2),
               ", found ", found_at(pos_));
      }
      value = value << 4 | static_cast<uint32_t>(digit);
      ++pos_;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      refuse(place, quoted(text_.substr(place, pos_ - place)), " is no Unicode character");
    }
    return value;
  }

  ExpressionId parse_repetitions(ExpressionId part, size_t place) {
    for (;;) {
      const size_t before = pos_;
      skip_blanks(false);
      if (take('*')) {
        part = repeat(part, 0, kUnbounded, place);
      } else if (take('+')) {
        part = repeat(part, 1, kUnbounded, place);
      } else if (take('?')) {
        part = repeat(part, 0, 1, place);
      } else if (take('{')) {
        part = parse_counts(part, place);
      } else {
        pos_ = before;
        return part;
      }
    }
  }

  ExpressionId repeat(ExpressionId part, uint32_t least, uint32_t most, size_t place) {
    if (set_[part].depth >= limits::kGrammarDepth) {
      refuse(place, "repetitions are nested more than ", limits::kGrammarDepth, " deep, the limit");
    }
    return set_.repeat(part, least, most);
  }

  ExpressionId parse_counts(ExpressionId part, size_t place) {
    const size_t brace = pos_ - 1;
    skip_blanks(false);
    const uint32_t least = parse_count();
    uint32_t most = least;
    skip_blanks(false);
    if (take(',')) {
      skip_blanks(false);
      most = peek() >= '0' && peek() <= '9' ? parse_count() : kUnbounded;
      skip_blanks(false);
    }
    if (!take('}')) {
      refuse(pos_, "expected } for the repetition, as in {2}, {2,} or {2,5}, found ",
             found_at(pos_));
    }
    if (most < least)
      refuse(brace, "the repetition {", least, ",", most, "} ends before it begins");
    return repeat(part, least, most, place);
  }

  uint32_t parse_count() {
    const size_t place = pos_;
    uint64_t value = 0;
    while (pos_ < text_.size() && text_[pos_] >= '0' && text_[pos_] <= '9') {
      value = std::min<uint64_t>(10 * value + static_cast<uint64_t>(text_[pos_++] - '0'), 1u << 31);
    }
    if (pos_ == place) refuse(place, "expected a number of repetitions, found ", found_at(place));
    if (value > limits::kGrammarPositions) {
      refuse(place, "more than ", limits::kGrammarPositions, " repetitions, the limit");
    }
    return static_cast<uint32_t>(value);
  }

  const std::string_view text_;
  size_t pos_ = 0;
  RuleSet set_;
  std::map<std::string, Rule, std::less<>> rules_;
};

}  // namespace

bool Grammar::matches(std::string_view text) const {
  grammar::Automaton automaton(program_);
  grammar::State state = automaton.start();
  for (const char c : text) {
    automaton.begin_work();
    state = automaton.next(state, static_cast<uint8_t>(c));
    if (state == grammar::kDead) return false;
  }
  return automaton.may_end(state);
}

Grammar parse_grammar(std::string_view gbnf, const std::string& place) {
  return with_context(place, [&] {
    if (gbnf.size() > limits::kGrammarBytes) {
      fail(ErrorKind::kMalformed, "the grammar has ", gbnf.size(), " bytes, the limit is ",
           limits::kGrammarBytes);
    }
    if (!is_valid_utf8(gbnf)) fail(ErrorKind::kMalformed, "the grammar is not UTF-8 text");
    if (gbnf.starts_with("\xEF\xBB\xBF")) gbnf.remove_prefix(3);
    RuleId root = 0;
    const RuleSet rules = GbnfParser(gbnf).parse(root);
    return Grammar(std::make_shared<grammar::Program>(
        grammar::make_program(rules, root, grammar::Endless::kRefuse)));
  });
}

}  // namespace lumen::text
