// A grammar as a network of positions that consume bytes (Woods 1970, recursive transition
// networks): what the automaton walks over.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/text/grammar/rules.h"

namespace lumen::text::grammar {

using PositionId = uint32_t;

enum class PositionKind : uint8_t {
  kBytes,  // consumes one byte: edges [begin, begin + count)
  kSplit,  // goes on at any of targets [begin, begin + count)
  kCall,   // derives rule `begin`, then goes on at position `count`
  kEnd,    // of a rule
};

struct Position {
  PositionKind kind;
  uint32_t begin = 0, count = 0;
};

// Bytes [first, last] lead to `target`.
struct Edge {
  uint8_t first, last;
  PositionId target;
  friend auto operator<=>(const Edge&, const Edge&) = default;
};

// From every position some text leads to the end of its rule: what cannot is left out.
struct Program {
  struct Rule {
    std::string name;
    PositionId entry = 0;
    bool nullable = false;  // derives the empty text
    // Rules that may be called before a byte of this one is consumed have greater ranks.
    uint32_t rank = 0;
  };
  std::vector<Position> positions;
  std::vector<Edge> edges;
  std::vector<PositionId> targets;
  std::vector<Rule> rules;  // 0: the root
  // Bytes that no edge tells apart share a class; `members` has one byte of each.
  std::array<uint8_t, 256> byte_class{};
  std::vector<uint8_t> members;
};

// What becomes of a rule, or an alternative, that no finite text can match.
enum class Endless : uint8_t { kRefuse, kDrop };

// The program of what `root` derives. Throws Error(kMalformed) for left recursion, naming the
// rules; for a grammar over limits::kGrammarPositions; and for rules without an end: any, or with
// kDrop only the root.
Program make_program(const RuleSet& rules, RuleId root, Endless endless);

}  // namespace lumen::text::grammar
