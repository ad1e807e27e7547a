#include "lib/text/merge_table.h"

#include "lib/base/random.h"
#include "lib/base/testing.h"

namespace lumen::text {
namespace {

// The definition: again and again the leftmost of the merges with the lowest rank.
void apply_naively(const MergeTable& table, std::vector<int32_t>& symbols) {
  while (true) {
    const MergeTable::Merge* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const MergeTable::Merge* merge = table.find(symbols[i], symbols[i + 1]);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        at = i;
      }
    }
    if (best == nullptr) return;
    symbols[at] = best->result;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

}  // namespace

TEST_CASE("Short and long words merge as defined", "[merges]") {
  Philox random(7);
  for (int round = 0; round < 300; ++round) {
    // Symbols are words over {0, 1}: id = 2^length + bits, so that equal spelling has equal id.
    MergeTable table;
    std::vector<std::pair<int32_t, int32_t>> known = {{2, 1}, {3, 1}};  // (id, length)
    for (uint32_t rank = 0; rank < 1 + random.below(40); ++rank) {
      const auto [left, left_length] = known[random.below(known.size())];
      const auto [right, right_length] = known[random.below(known.size())];
      if (left_length + right_length > 12) continue;
      const int32_t bits =
          (left & ((1 << left_length) - 1)) << right_length | (right & ((1 << right_length) - 1));
      const int32_t id = 1 << (left_length + right_length) | bits;
      // Every other time ranks repeat, as with scores.
      table.set(left, right, {round % 2 == 0 ? rank : rank / 4, id});
      known.emplace_back(id, left_length + right_length);
    }
    for (const size_t length : {0, 1, 2, 7, 48, 49, 200}) {
      std::vector<int32_t> word;
      const bool runs = random.below(2) == 0;
      for (size_t i = 0; i < length; ++i) {
        word.push_back(runs && i > 0 && random.below(8) > 0
                           ? word.back()
                           : 2 + static_cast<int32_t>(random.below(2)));
      }
      std::vector<int32_t> expected = word;
      apply_naively(table, expected);
      table.apply(word);
      CHECK(word == expected);
    }
  }
}

TEST_CASE("A later merge of the same pair replaces the earlier", "[merges]") {
  MergeTable table;
  table.set(1, 2, {5, 3});
  table.set(1, 2, {9, 4});
  REQUIRE(table.find(1, 2) != nullptr);
  CHECK(table.find(1, 2)->result == 4);
  CHECK(table.find(2, 1) == nullptr);
  CHECK(table.size() == 1);
}

}  // namespace lumen::text
