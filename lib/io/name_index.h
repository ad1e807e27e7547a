// NameIndex: finds names in a table and duplicates while it is filled, in linear time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/base/error.h"
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

// Throws Error(kMalformed) if two of `tensors` from number `first` on have the same name.
template <typename Tensor>
void check_unique_names(const std::vector<Tensor>& tensors, size_t first) {
  NameIndex names(tensors.size() - first);
  const auto name_of = [&](uint32_t i) -> std::string_view { return tensors[i].name; };
  for (size_t i = first; i < tensors.size(); ++i) {
    const auto number = static_cast<uint32_t>(i);
    if (names.insert(name_of(number), number, name_of) != NameIndex::kNone) {
      fail(ErrorKind::kMalformed, "the tensor ", quoted(name_of(number)), " is there twice");
    }
  }
}

}  // namespace lumen::io
