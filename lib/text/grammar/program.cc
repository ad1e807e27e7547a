#include "lib/text/grammar/program.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "lib/base/error.h"
#include "lib/base/limits.h"

namespace lumen::text::grammar {
namespace {

struct ByteRange {
  uint8_t first, last;
};

// Calls found(ranges, count) for sequences of byte ranges that together are the UTF-8 forms of the
// code points [first, last]: a range is split until its forms have one length and differ in bytes
// each of which takes every value between its first and its last.
template <typename Found>
void split_utf8(uint32_t first, uint32_t last, const Found& found) {
  for (const uint32_t most : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (first <= most && most < last) {
      split_utf8(first, most, found);
      return split_utf8(most + 1, last, found);
    }
  }
  for (int i = 1; i < 4 && first > 0x7F; ++i) {
    const uint32_t low = (1u << (6 * i)) - 1;
    if ((first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) {
      split_utf8(first, first | low, found);
      return split_utf8((first | low) + 1, last, found);
    }
    if ((last & low) != low) {
      split_utf8(first, (last & ~low) - 1, found);
      return split_utf8(last & ~low, last, found);
    }
  }
  std::string low, high;
  append_utf8(low, first);
  append_utf8(high, last);
  std::array<ByteRange, 4> ranges{};
  for (size_t i = 0; i < low.size(); ++i) {
    ranges[i] = {static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i])};
  }
  found(ranges, low.size());
}

// Which rules are copied into their callers instead of being called. A copy saves the automaton
// frames of the stack and is seen through by token masks; a call lets all callers share the masks
// inside the rule. So what is short, regular and no loop over many characters is copied.
class Inlining {
 public:
  explicit Inlining(const RuleSet& rules) : rules_(rules), sizes_(rules.size(), kUnknown) {
    std::vector<RuleId> open;
    for (RuleId rule = 0; rule < rules.size(); ++rule) visit(rule, open);
  }
  bool operator()(RuleId rule) const { return sizes_[rule] <= kMost; }

 private:
  static constexpr uint64_t kMost = 64, kNever = kMost + 1, kUnknown = kNever + 1;
  static constexpr int64_t kNarrow = 8;  // characters of a loop

  // Measures what `rule` refers to before the rule. Rules still open when they are referred to are
  // recursive.
  void visit(RuleId start, std::vector<RuleId>& open) {
    if (sizes_[start] != kUnknown) return;
    open.push_back(start);
    entered_.resize(rules_.size());
    while (!open.empty()) {
      const RuleId rule = open.back();
      if (!entered_[rule]) {
        entered_[rule] = true;
        references(rules_.body(rule), [&](RuleId other) {
          if (!entered_[other]) open.push_back(other);
        });
      } else {
        open.pop_back();
        if (sizes_[rule] == kUnknown) sizes_[rule] = size(rules_.body(rule));
      }
    }
  }

  template <typename Found>
  void references(ExpressionId id, const Found& found) const {
    const Expression& e = rules_[id];
    if (e.kind == ExpressionKind::kReference) found(e.rule);
    for (const ExpressionId part : e.parts) references(part, found);
  }

  uint64_t size(ExpressionId id) const {
    const Expression& e = rules_[id];
    uint64_t sum = 1;
    for (const ExpressionId part : e.parts) sum = std::min(sum + size(part), kNever);
    switch (e.kind) {
      case ExpressionKind::kLiteral:
        return std::min<uint64_t>(sum + e.literal.size(), kNever);
      case ExpressionKind::kChars:
        return std::min<uint64_t>(sum + 2 * e.chars.size(), kNever);
      case ExpressionKind::kSequence:
      case ExpressionKind::kChoice:
        return sum;
      case ExpressionKind::kRepeat:
        if (e.most > kMost && !is_narrow(e.parts[0])) return kNever;
        return std::min(sum * std::max<uint64_t>(e.most == kUnbounded ? e.least + 1 : e.most, 1),
                        kNever);
      case ExpressionKind::kReference:
        return std::min(sizes_[e.rule], kNever);
    }
    return kNever;
  }

  bool is_narrow(ExpressionId id) const {
    const Expression& e = rules_[id];
    if (e.kind == ExpressionKind::kReference) {
      return sizes_[e.rule] <= kMost && is_narrow(rules_.body(e.rule));
    }
    if (e.kind == ExpressionKind::kLiteral) return e.literal.size() <= 1;
    if (e.kind == ExpressionKind::kChoice) {
      return std::all_of(e.parts.begin(), e.parts.end(),
                         [&](ExpressionId part) { return is_narrow(part); });
    }
    int64_t characters = 0;
    for (const CharRange& range : e.chars) characters += range.last - range.first + 1;
    return e.kind == ExpressionKind::kChars && characters <= kNarrow;
  }

  const RuleSet& rules_;
  std::vector<uint64_t> sizes_;
  std::vector<bool> entered_;
};

class Compiler {
 public:
  Compiler(const RuleSet& rules, Endless endless)
      : rules_(rules), endless_(endless), inlined_(rules) {}

  Program compile(RuleId root) {
    called(root);
    for (size_t i = 0; i < sources_.size(); ++i) {
      const PositionId end = add({PositionKind::kEnd});
      program_.rules[i].entry = compile(rules_.body(sources_[i]), end);
    }
    drop_endless();
    const std::vector<bool> empty = reaching_end(false);
    for (Program::Rule& rule : program_.rules) rule.nullable = empty[rule.entry];
    rank_rules();
    classify_bytes();
    return std::move(program_);
  }

 private:
  // Of texts that agree so far: how they go on, and whether one of them ends.
  struct TextNode {
    std::vector<Edge> edges;
    bool may_end = false;
    friend auto operator<=>(const TextNode&, const TextNode&) = default;
  };

  PositionId add(Position position) {
    if (program_.positions.size() >= limits::kGrammarPositions) {
      fail(ErrorKind::kMalformed, "the grammar has more than ", limits::kGrammarPositions,
           " positions, the limit, when its texts and repetitions are written out: name fewer ",
           "texts, or lower the counts");
    }
    program_.positions.push_back(position);
    return static_cast<PositionId>(program_.positions.size() - 1);
  }
  PositionId add_split(std::vector<PositionId> to) {
    const auto begin = static_cast<uint32_t>(program_.targets.size());
    program_.targets.insert(program_.targets.end(), to.begin(), to.end());
    return add({PositionKind::kSplit, begin, static_cast<uint32_t>(to.size())});
  }
  PositionId add_bytes(std::vector<Edge> edges) {
    const auto begin = static_cast<uint32_t>(program_.edges.size());
    program_.edges.insert(program_.edges.end(), edges.begin(), edges.end());
    return add({PositionKind::kBytes, begin, static_cast<uint32_t>(edges.size())});
  }

  // The number of a rule in the program, which will be compiled.
  uint32_t called(RuleId rule) {
    const auto [found, is_new] = numbers_.try_emplace(rule, sources_.size());
    if (is_new) {
      sources_.push_back(rule);
      program_.rules.push_back({rules_.name(rule)});
    }
    return static_cast<uint32_t>(found->second);
  }

  // The position where texts of the expression begin that go on at `next`.
  PositionId compile(ExpressionId id, PositionId next) {
    const Expression& e = rules_[id];
    switch (e.kind) {
      case ExpressionKind::kLiteral:
        for (size_t i = e.literal.size(); i-- > 0;) {
          const auto byte = static_cast<uint8_t>(e.literal[i]);
          next = add_bytes({{byte, byte, next}});
        }
        return next;
      case ExpressionKind::kChars:
        return compile_chars(e.chars, next);
      case ExpressionKind::kSequence:
        for (size_t i = e.parts.size(); i-- > 0;) next = compile(e.parts[i], next);
        return next;
      case ExpressionKind::kChoice:
        return compile_choice(e, next);
      case ExpressionKind::kRepeat:
        return compile_repeat(e, next);
      case ExpressionKind::kReference:
        if (inlined_(e.rule)) return compile(rules_.body(e.rule), next);
        return add({PositionKind::kCall, called(e.rule), next});
    }
    return next;
  }

  PositionId compile_choice(const Expression& e, PositionId next) {
    std::vector<PositionId> to;
    std::vector<std::string_view> texts;
    for (const ExpressionId part : e.parts) {
      if (rules_[part].kind == ExpressionKind::kLiteral) {
        texts.emplace_back(rules_[part].literal);
      } else {
        to.push_back(compile(part, next));
      }
    }
    if (!texts.empty()) to.push_back(compile_texts(std::move(texts), next));
    return to.size() == 1 ? to[0] : add_split(std::move(to));
  }

  // One of many texts, as the least network without two ways for a byte (Daciuk et al. 2000): the
  // texts are taken in order, and the positions where one departs from the one before are new.
  PositionId compile_texts(std::vector<std::string_view> texts, PositionId next) {
    std::sort(texts.begin(), texts.end());
    std::vector<TextNode> path(1);  // after each byte of the text
    std::map<TextNode, PositionId> known;
    std::string_view before;
    const auto leave = [&](size_t depth) {
      for (; path.size() > depth + 1; path.pop_back()) {
        const PositionId target = position(path.back(), next, known);
        const auto byte = static_cast<uint8_t>(before[path.size() - 2]);
        std::vector<Edge>& edges = path[path.size() - 2].edges;
        if (!edges.empty() && edges.back().last + 1 == byte && edges.back().target == target) {
          edges.back().last = byte;
        } else {
          edges.push_back({byte, byte, target});
        }
      }
    };
    for (const std::string_view text : texts) {
      const auto departure = std::mismatch(before.begin(), before.end(), text.begin(), text.end());
      leave(static_cast<size_t>(departure.first - before.begin()));
      path.resize(text.size() + 1);
      path.back().may_end = true;
      before = text;
    }
    leave(0);
    return position(path[0], next, known);
  }

  PositionId position(const TextNode& node, PositionId next,
                      std::map<TextNode, PositionId>& known) {
    if (node.edges.empty()) return next;
    const auto [found, is_new] = known.try_emplace(node, 0);
    if (is_new) {
      found->second = add_bytes(node.edges);
      if (node.may_end) found->second = add_split({found->second, next});
    }
    return found->second;
  }

  PositionId compile_repeat(const Expression& e, PositionId next) {
    const ExpressionId part = e.parts[0];
    PositionId here = next;
    if (e.most == kUnbounded) {
      here = add_split({next, next});
      program_.targets[program_.positions[here].begin] = compile(part, here);
    } else {
      for (uint32_t i = e.least; i < e.most; ++i) here = add_split({compile(part, here), next});
    }
    for (uint32_t i = 0; i < e.least; ++i) {
      const PositionId before = here;
      here = compile(part, here);
      if (here == before) break;  // the part is the empty text
    }
    return here;
  }

  PositionId compile_chars(const CharSet& set, PositionId next) {
    std::vector<Edge> edges;
    std::map<std::tuple<uint8_t, uint8_t, PositionId>, PositionId> tails;  // shared ends of forms
    for (const CharRange& range : set) {
      split_utf8(range.first, range.last, [&](const std::array<ByteRange, 4>& bytes, size_t count) {
        PositionId to = next;
        for (size_t i = count; i-- > 1;) {
          PositionId& tail = tails[{bytes[i].first, bytes[i].last, to}];
          if (tail == 0) tail = 1 + add_bytes({{bytes[i].first, bytes[i].last, to}});
          to = tail - 1;
        }
        edges.push_back({bytes[0].first, bytes[0].last, to});
      });
    }
    return add_bytes(std::move(edges));
  }

  // The positions from which the end of the rule can be reached, without bytes or through any: the
  // least solution of Horn clauses (Dowling and Gallier 1984), in linear time. A call needs both
  // its rule and what follows, everything else one of its targets.
  std::vector<bool> reaching_end(bool through_bytes) const {
    const size_t count = program_.positions.size();
    const auto for_each_target = [&](const Position& p, auto&& found) {
      if (p.kind == PositionKind::kCall) {
        found(program_.rules[p.begin].entry);
        found(p.count);
      } else if (p.kind == PositionKind::kSplit) {
        for (uint32_t i = 0; i < p.count; ++i) found(program_.targets[p.begin + i]);
      } else if (p.kind == PositionKind::kBytes && through_bytes) {
        for (uint32_t i = 0; i < p.count; ++i) found(program_.edges[p.begin + i].target);
      }
    };
    std::vector<uint32_t> begins(count + 1), sources;  // who needs a position
    for (const Position& p : program_.positions) {
      for_each_target(p, [&](PositionId target) { ++begins[target + 1]; });
    }
    for (size_t i = 0; i < count; ++i) begins[i + 1] += begins[i];
    sources.resize(begins[count]);
    std::vector<uint32_t> filled(begins.begin(), begins.end() - 1);
    for (PositionId p = 0; p < count; ++p) {
      for_each_target(program_.positions[p],
                      [&](PositionId target) { sources[filled[target]++] = p; });
    }
    std::vector<bool> reached(count);
    std::vector<uint8_t> missing(count);
    std::vector<PositionId> work;
    for (PositionId p = 0; p < count; ++p) {
      const PositionKind kind = program_.positions[p].kind;
      missing[p] = kind == PositionKind::kCall ? 2 : 1;
      if (kind == PositionKind::kEnd) reached[p] = true, work.push_back(p);
    }
    while (!work.empty()) {
      const PositionId p = work.back();
      work.pop_back();
      for (uint32_t i = begins[p]; i < begins[p + 1]; ++i) {
        const PositionId source = sources[i];
        if (reached[source] || --missing[source] > 0) continue;
        reached[source] = true;
        work.push_back(source);
      }
    }
    return reached;
  }

  void drop_endless() {
    const std::vector<bool> live = reaching_end(true);
    for (size_t i = 0; i < program_.rules.size(); ++i) {
      if (live[program_.rules[i].entry]) continue;
      if (endless_ == Endless::kDrop && i > 0) continue;
      if (endless_ == Endless::kDrop) {
        fail(ErrorKind::kMalformed, quoted(program_.rules[i].name),
             " allows no value, or only ones without an end");
      }
      fail(ErrorKind::kMalformed, "rule ", quoted(program_.rules[i].name),
           " matches no finite text: give it an alternative that ends");
    }
    for (Position& p : program_.positions) {
      if (p.kind == PositionKind::kSplit) {
        const auto begin = program_.targets.begin() + p.begin;
        const auto end =
            std::remove_if(begin, begin + p.count, [&](PositionId to) { return !live[to]; });
        p.count = static_cast<uint32_t>(end - begin);
      } else if (p.kind == PositionKind::kBytes) {
        const auto begin = program_.edges.begin() + p.begin;
        const auto end = std::remove_if(begin, begin + p.count,
                                        [&](const Edge& edge) { return !live[edge.target]; });
        p.count = static_cast<uint32_t>(end - begin);
      }
    }
    live_ = live;
  }

  // The rules that `rule` may call before it consumes a byte.
  std::vector<uint32_t> first_calls(uint32_t rule) {
    std::vector<uint32_t> calls;
    std::vector<PositionId> work = {program_.rules[rule].entry};
    ++round_;
    seen_.resize(program_.positions.size());
    const auto push = [&](PositionId p) {
      if (seen_[p] == round_ || !live_[p]) return;
      seen_[p] = round_;
      work.push_back(p);
    };
    while (!work.empty()) {
      const Position p = program_.positions[work.back()];
      work.pop_back();
      if (p.kind == PositionKind::kSplit) {
        for (uint32_t i = 0; i < p.count; ++i) push(program_.targets[p.begin + i]);
      } else if (p.kind == PositionKind::kCall) {
        calls.push_back(p.begin);
        if (program_.rules[p.begin].nullable) push(p.count);
      }
    }
    std::sort(calls.begin(), calls.end());
    calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
    return calls;
  }

  // A topological order of the first calls; a cycle is left recursion.
  void rank_rules() {
    struct Frame {
      uint32_t rule;
      std::vector<uint32_t> calls;
      size_t next = 0;
    };
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> states(program_.rules.size(), kNew);
    auto rank = static_cast<uint32_t>(program_.rules.size());
    std::vector<Frame> open;
    const auto enter = [&](uint32_t rule) {
      states[rule] = kOpen;
      open.push_back({rule, first_calls(rule)});
    };
    for (uint32_t start = 0; start < program_.rules.size(); ++start) {
      if (states[start] == kNew && live_[program_.rules[start].entry]) enter(start);
      while (!open.empty()) {
        Frame& frame = open.back();
        if (frame.next == frame.calls.size()) {
          states[frame.rule] = kDone;
          program_.rules[frame.rule].rank = --rank;
          open.pop_back();
          continue;
        }
        const uint32_t called = frame.calls[frame.next++];
        if (states[called] == kOpen) {
          std::string chain;
          bool is_part = false;
          for (const Frame& one : open) {
            is_part = is_part || one.rule == called;
            if (is_part) chain += program_.rules[one.rule].name + " → ";
          }
          const std::string cycle = quoted(chain + program_.rules[called].name, 200);
          if (endless_ == Endless::kDrop) {
            fail(ErrorKind::kMalformed, cycle, " leads back to itself without a value between");
          }
          fail(ErrorKind::kMalformed, "left recursion: ", cycle,
               " begins with itself; write repetitions with * or +, or let it begin with a text");
        }
        if (states[called] == kNew) enter(called);
      }
    }
  }

  void classify_bytes() {
    std::array<bool, 257> is_border{};
    is_border[0] = true;
    for (const Position& p : program_.positions) {
      if (p.kind != PositionKind::kBytes) continue;
      for (uint32_t i = 0; i < p.count; ++i) {
        is_border[program_.edges[p.begin + i].first] = true;
        is_border[program_.edges[p.begin + i].last + size_t{1}] = true;
      }
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      if (is_border[byte]) program_.members.push_back(static_cast<uint8_t>(byte));
      program_.byte_class[byte] = static_cast<uint8_t>(program_.members.size() - 1);
    }
  }

  const RuleSet& rules_;
  const Endless endless_;
  const Inlining inlined_;
  Program program_;
  std::map<RuleId, size_t> numbers_;
  std::vector<RuleId> sources_;  // of the program's rules
  std::vector<bool> live_;
  std::vector<uint32_t> seen_;
  uint32_t round_ = 0;
};

}  // namespace

Program make_program(const RuleSet& rules, RuleId root, Endless endless) {
  return Compiler(rules, endless).compile(root);
}

}  // namespace lumen::text::grammar
