// NameIndex: finds names in a table and duplicates while it is filled, in linear time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/base/function_ref.h"

namespace lumen::io {

// An open-addressing hash index over names that are stored elsewhere and known by number. The hash
// is keyed with a secret drawn once per process, so that a file cannot be made of names that all
// collide. 4 to 16 bytes per name.
class NameIndex {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  using NameOf = FunctionRef<std::string_view(uint32_t number)>;

  // Prepares for `count` names.
  explicit NameIndex(uint64_t count = 0);

  // Enters `name` as `number`, at most `count` times. Returns kNone, or the number of the equal
  // name that is there already and stays.
  uint32_t insert(std::string_view name, uint32_t number, NameOf name_of);
  // The number of `name`, or kNone.
  uint32_t find(std::string_view name, NameOf name_of) const;

 private:
  std::vector<uint32_t> slots_;  // size a power of two, at least twice the number of names
};

}  // namespace lumen::io
