// GBNF, and the automaton against a naive matcher.
#include "lib/text/grammar.h"

#include <map>
#include <random>
#include <set>

#include "lib/base/limits.h"
#include "lib/base/testing.h"
#include "lib/text/grammar/automaton.h"

namespace lumen::text {
namespace {

using grammar::Expression;
using grammar::ExpressionId;
using grammar::ExpressionKind;
using grammar::RuleId;
using grammar::RuleSet;
using lumen::testing::contains;
using lumen::testing::refusal;
using lumen::testing::repeated;

struct GbnfCase {
  const char* name;
  const char* gbnf;
  std::vector<std::string> matches, others;
};

const std::vector<GbnfCase>& gbnf_cases() {
  static const std::vector<GbnfCase> kCases = {
      {"literals and escapes",
       R"(root ::= "a\n\t\r\"\\\x41\u00e9\U0001F600")",
       {"a\n\t\r\"\\Aé😀"},
       {"", "a", "a\n\t\r\"\\Aé", "a\n\t\r\"\\Aé😀x"}},
      {"classes",
       R"(root ::= [a-cx] [^a-z\n] [\]\-] [α-ω€] [-+])",
       {"a1]α-", "xA-€+", "b€]ω-"},
       {"d1]α-", "aa]α-", "a\n]α-", "a1[α-", "a1]a-"}},
      {"any character", "root ::= . .", {"é€", "a\n"}, {"a", "abc", "\xE9\x80", "a\x80"}},
      {"counts",
       R"(root ::= "d"{2} "e"{1,} "f"{0,2} ("g" "h"){2,3})",
       {"ddeghgh", "ddeeeffghghgh"},
       {"deghgh", "ddghgh", "ddefffghgh", "ddegh", "ddeghghghgh"}},
      {"comments and lines",
       "# first\nroot ::= a # then\n  | \"x\" # or\n  | (\n b \n | \"z\" ) \n\na ::=\n \"a\"\nb "
       "::= \"b\" |\n"
       " \"c\"\r\n",
       {"a", "b", "c", "x", "z"},
       {"", "ab"}},
      {"empty alternatives", "root ::= (\"a\" | ) b\nb ::= | \"b\"", {"", "a", "b", "ab"}, {"ba"}},
      {"arithmetic",
       "root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= num | \"(\" expr \")\"\n"
       "num ::= [0-9]+",
       {"1", "1+2", "(1+2)*3", "((((7))))", "1+2*3/4-5"},
       {"", "1+", "(1", "1)", "()", "+1"}},
      {"lists",
       "root ::= (\"- \" [^\\n]+ \"\\n\"){1,3}",
       {"- a\n", "- a\n- b c\n"},
       {"", "- \n", "- a"}},
      {"moves",
       "root ::= \"1. \" move \" \" move (\"\\n\" [1-9] \". \" move \" \" move)*\n"
       "move ::= (pawn | piece | \"O-O\" \"-O\"?) [+#]?\n"
       "pawn ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBRQ])?\n"
       "piece ::= [NBRQK] [a-h]? [1-8]? \"x\"? [a-h] [1-8]",
       {"1. e4 e5", "1. e4 e5\n2. Nf3 Nc6", "1. exd5 O-O-O+", "1. e8=Q# Nbd7"},
       {"1. e9 e5", "1. e4", "2. e4 e5", "1. e4 e5\n"}},
      {"right recursion", "root ::= \"a\" root | \"b\"", {"b", "ab", "aaaab"}, {"", "a", "ba"}},
      {"nesting", "root ::= \"a\" root \"b\" | \"\"", {"", "ab", "aaabbb"}, {"aab", "abb", "ba"}},
      {"palindromes",
       "root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"a\"? | \"b\"",
       {"", "a", "b", "aa", "abba", "ababa"},
       {"ab", "aab", "abab"}},
      {"ambiguous",
       "root ::= s\ns ::= \"a\" s s | \"a\" s | \"a\" | s2\ns2 ::= \"b\" s?",
       {"a", "aaaaaaa", "abab", "baab"},
       {"", "c", "ac"}},
      {"nullable loops",
       "root ::= (a? b*)* c{0,2}\na ::= \"a\"?\nb ::= (\"b\" | a)*\nc ::= \"\"",
       {"", "abba", "bbbb"},
       {"c", "abc"}},
  };
  return kCases;
}

TEST_CASE("grammars of GBNF match their texts and no others") {
  for (const GbnfCase& one : gbnf_cases()) {
    const Grammar grammar = parse_grammar(one.gbnf, "test");
    for (const std::string& text : one.matches) {
      CAPTURE(one.name, text);
      CHECK(grammar.matches(text));
    }
    for (const std::string& text : one.others) {
      CAPTURE(one.name, text);
      CHECK_FALSE(grammar.matches(text));
    }
  }
}

TEST_CASE("errors of GBNF name the place") {
  const std::pair<const char*, const char*> cases[] = {
      {"root ::= \"a\nb", "g: line 1, column 10: this literal has no closing \""},
      {"root ::= [a-", "line 1, column 10: this class has no closing ]"},
      {"root ::= [z-a]", "line 1, column 11: the range 'z-a' ends before it begins"},
      {"root ::= []", "line 1, column 10: this class has no character"},
      {"root ::= \"é\" x\n", "line 1, column 14: rule 'x' is used but not defined"},
      {"root ::= numbr\nnumber ::= \"1\"", "did you mean number?"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule 'root' is defined a second time"},
      {"rot ::= \"a\"", "there is no rule 'root'"},
      {"", "line 1, column 1: there is no rule 'root'"},
      {"root = \"a\"", "line 1, column 6: expected ::= after the name 'root', found '='"},
      {"root ::= (\"a\"\nb ::= \"c\"",
       "line 2, column 3: expected ) for the group that begins in "
       "line 1, found ':'"},
      {"root ::= \"a\")", "line 1, column 13: expected an expression or the end of the line"},
      {"root ::= * \"a\"", "line 1, column 10: expected an expression or the end of the line"},
      {"root ::= \"a\"{2", "expected } for the repetition"},
      {"root ::= \"a\"{3,2}", "line 1, column 13: the repetition {3,2} ends before it begins"},
      {"root ::= \"a\"{}", "line 1, column 14: expected a number of repetitions, found '}'"},
      {"root ::= \"\\q\"", "line 1, column 11: unknown escape \\q; there are \\n"},
      {"root ::= \"\\u12\"", "expected 4 hexadecimal digits after \\u, found '\"'"},
      {"root ::= \"\\uD800\"", "'\\uD800' is no Unicode character"},
      {"root ::= <think>", "line 1, column 10: tokens, like <think>"},
      {"root ::= a\na ::= b? c\nb ::= \"b\"\nc ::= a \"x\" | \"y\"",
       "g: left recursion: 'a → c → a' begins with itself"},
      {"root ::= \"a\" root", "rule 'root' matches no finite text"},
      {"root ::= \"a\" | b\nb ::= \"b\" b", "rule 'b' matches no finite text"},
      {"root ::= \"\xFF\"", "not UTF-8"},
      {"root ::= \"a\"{0,999999}{0,999999}", "more than 1048576 positions, the limit"},
      {"root ::= \"a\"{99999999999}", "more than 1048576 repetitions, the limit"},
  };
  for (const auto& [gbnf, expected] : cases) {
    const std::string message =
        refusal(ErrorKind::kMalformed, [text = gbnf] { parse_grammar(text, "g"); });
    CAPTURE(gbnf, message);
    CHECK(contains(message, expected));
    CHECK(message.starts_with("g: "));
  }
}

TEST_CASE("hostile grammars are refused or followed, in time") {
  const auto refused = [](const std::string& gbnf) {
    return refusal(ErrorKind::kMalformed, [&] { parse_grammar(gbnf, "g"); });
  };
  CHECK(contains(refused("root ::= " + repeated("(", 100'000)), "nested more than"));
  CHECK(contains(refused("root ::= \"a\"" + repeated("*", 100'000)), "nested more than"));
  CHECK(contains(refused("root ::= " + repeated("(", 100) + "\"a\"{9}" + repeated("){9}", 100)),
                 "positions, the limit"));
  CHECK(contains(refused("root ::= " + repeated("(", 100) + "\"\"{9}" + repeated("){9}", 100)),
                 "accepted"));
  CHECK(contains(refused(std::string(limits::kGrammarBytes + 1, ' ')), "bytes, the limit is"));
  // A long chain of rules is neither recursion in the parser nor in the automaton.
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 20'000; ++i) {
    chain += str("r", i, " ::= r", i + 1, " | \"z\"\n");
  }
  chain += "r20000 ::= \"e\" root? \"f\"";
  CHECK(parse_grammar(chain, "g").matches("eezff"));
  // Exponentially many derivations.
  const Grammar ambiguous = parse_grammar(
      "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"a\" root root \"d\" | \"a\"", "g");
  CHECK(ambiguous.matches(repeated("a", 301) + repeated("bc", 150)));
  CHECK_FALSE(ambiguous.matches(repeated("a", 301) + repeated("bc", 149)));
  // Every position of a long optional chain at once.
  CHECK(parse_grammar("root ::= (\"a\" \"b\"?){0,5000}", "g").matches(repeated("a", 5000)));
}

// Random grammars over a, b and c with up to four rules.
struct RandomGrammar {
  explicit RandomGrammar(uint32_t seed) : random(seed) {
    const RuleId count = 1 + pick(4);
    for (RuleId rule = 0; rule < count; ++rule) rules.declare(str("r", rule));
    for (RuleId rule = 0; rule < count; ++rule) rules.define(rule, expression(3));
  }

  ExpressionId expression(int depth) {
    switch (pick(depth == 0 ? 2 : 7)) {
      case 0:
        return rules.literal(std::string(1, letter()));
      case 1: {
        const auto first = static_cast<uint32_t>(letter());
        return rules.chars({{first, first + pick(2)}});
      }
      case 2:
        return rules.reference(pick(static_cast<uint32_t>(rules.size())));
      case 3:
      case 4:
        return rules.sequence({expression(depth - 1), expression(depth - 1)});
      case 5:
        return rules.choice({expression(depth - 1), expression(depth - 1)});
      default: {
        const uint32_t least = pick(3);
        const uint32_t most = pick(3) == 0 ? grammar::kUnbounded : least + pick(3);
        return rules.repeat(expression(depth - 1), least, most);
      }
    }
  }
  char letter() { return static_cast<char>('a' + pick(3)); }
  uint32_t pick(uint32_t count) { return static_cast<uint32_t>(random()) % count; }

  std::mt19937 random;
  RuleSet rules;
};

// Where texts of an expression that begin at `pos` may end: by definition, without an automaton.
class NaiveMatcher {
 public:
  NaiveMatcher(const RuleSet& rules, std::string_view text) : rules_(rules), text_(text) {}

  bool matches(RuleId root) { return ends(rules_.body(root), 0).count(text_.size()) > 0; }

 private:
  using Ends = std::set<size_t>;

  Ends ends(ExpressionId id, size_t pos) {
    const auto known = known_.find({id, pos});
    if (known != known_.end()) return known->second;
    known_[{id, pos}] = {};  // of a rule that begins with itself and never ends
    return known_[{id, pos}] = find(rules_[id], pos);
  }

  Ends find(const Expression& e, size_t pos) {
    switch (e.kind) {
      case ExpressionKind::kLiteral:
        return text_.substr(pos).starts_with(e.literal) ? Ends{pos + e.literal.size()} : Ends{};
      case ExpressionKind::kChars:
        for (const auto& range : e.chars) {
          const auto c = pos < text_.size() ? static_cast<uint8_t>(text_[pos]) : uint32_t{0};
          if (range.first <= c && c <= range.last) return {pos + 1};
        }
        return {};
      case ExpressionKind::kSequence: {
        Ends here = {pos};
        for (const ExpressionId part : e.parts) here = each(here, part);
        return here;
      }
      case ExpressionKind::kChoice: {
        Ends all;
        for (const ExpressionId part : e.parts) all.merge(ends(part, pos));
        return all;
      }
      case ExpressionKind::kRepeat: {
        Ends here = {pos}, all;
        for (uint32_t i = 0; i < e.least; ++i) here = each(here, e.parts[0]);
        all = here;
        for (uint32_t i = e.least; i < e.most && i < e.least + text_.size() + 1; ++i) {
          here = each(here, e.parts[0]);
          all.insert(here.begin(), here.end());
        }
        return all;
      }
      case ExpressionKind::kReference:
        return ends(rules_.body(e.rule), pos);
    }
    return {};
  }

  Ends each(const Ends& from, ExpressionId part) {
    Ends all;
    for (const size_t pos : from) all.merge(ends(part, pos));
    return all;
  }

  const RuleSet& rules_;
  std::string_view text_;
  std::map<std::pair<ExpressionId, size_t>, Ends> known_;
};

TEST_CASE("the automaton agrees with a naive matcher on all short texts of random grammars") {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < 5; ++i) {
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  }
  int grammars = 0, matched = 0;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    RandomGrammar random(seed);
    std::shared_ptr<const grammar::Program> program;
    try {
      program = std::make_shared<grammar::Program>(
          grammar::make_program(random.rules, 0, grammar::Endless::kDrop));
    } catch (const Error&) {  // left recursion or no finite text
      continue;
    }
    ++grammars;
    grammar::Automaton automaton(program);
    for (const std::string& text : texts) {
      grammar::State state = automaton.start();
      for (const char c : text) state = automaton.next(state, static_cast<uint8_t>(c));
      const bool expected = NaiveMatcher(random.rules, text).matches(0);
      matched += expected ? 1 : 0;
      if (automaton.may_end(state) == expected) continue;
      CAPTURE(seed, text, expected);
      REQUIRE(automaton.may_end(state) == expected);
    }
  }
  CHECK(grammars > 500);
  CHECK(matched > 5000);
}

TEST_CASE("a state from another automaton goes on in the same way") {
  const Grammar grammar =
      parse_grammar("root ::= v\nv ::= \"[\" (v (\",\" v)*)? \"]\" | [0-9]+ | \"(\" v \")\"", "g");
  grammar::Automaton one(grammar.program()), other(grammar.program());
  const std::string text = "[1,([[2],3]),[([([])])]]";
  grammar::State state = one.start();
  for (size_t i = 0; i < text.size(); ++i) {
    grammar::State copy = other.adopt(one, state);
    CHECK(one.adopt(other, copy) == state);
    for (size_t j = i; j < text.size(); ++j) {
      CHECK_FALSE(other.may_end(copy));
      copy = other.next(copy, static_cast<uint8_t>(text[j]));
    }
    CHECK(other.may_end(copy));
    state = one.next(state, static_cast<uint8_t>(text[i]));
  }
}

TEST_CASE("lists do not grow the stack, so their states recur") {
  for (const char* gbnf : {"root ::= \"a\" root | \"b\"",
                           "root ::= item root | item\nitem ::= [ab] item2\n"
                           "item2 ::= \"b\"? | \"c\" item2"}) {
    const Grammar grammar = parse_grammar(gbnf, "g");
    grammar::Automaton automaton(grammar.program());
    grammar::State state = automaton.start();
    std::set<grammar::State> states;
    for (int i = 0; i < 1000; ++i) states.insert(state = automaton.next(state, 'a'));
    CHECK(states.size() <= 2);
  }
}

}  // namespace
}  // namespace lumen::text
