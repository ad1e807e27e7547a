// Python's pickles, as far as torch.save needs them, read as data: nothing in them is ever called,
// imported or made, and there is no way to switch that off.
// Opcodes: https://docs.python.org/3/library/pickletools.html (protocol 2).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::io {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kTuple,
  kList,
  kDict,
  kGlobal,      // the name of something in a Python module
  kCall,        // a name with arguments: what Python would call, here only told
  kPersistent,  // the id of an object that lies elsewhere (a storage)
};

// A value inside a Pickle, which it must not outlive.
struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  uint32_t size = 0;  // of a text, tuple: bytes, items
  uint64_t at = 0;    // the number, or where the Pickle has the rest
};

// A parsed pickle. Memory ≤ 64 bytes for each of its bytes, and limits.h. Immutable; containers may
// contain themselves, so that who walks them must bound the depth.
class Pickle {
 public:
  // Parses `bytes`, which must be one pickle of protocol 2 to the last byte. `globals` are the
  // names that it may hold, "module name"; they must outlive it. Refuses, with Error(kMalformed)
  // and the byte's number: any other name (kUnsupported if it is torch's own), any opcode that
  // torch.save does not write, states of anything but dictionaries, arguments of collections'
  // OrderedDict, missing operands, texts that are not UTF-8, limits.h.
  Pickle(std::string_view bytes, std::span<const std::string_view> globals);

  const PickleValue& root() const { return root_; }

  // For the kind that the name says; our own bug otherwise.
  bool boolean(const PickleValue& value) const;
  int64_t integer(const PickleValue& value) const;
  std::string_view text(const PickleValue& value) const;
  std::string_view global(const PickleValue& value) const;
  // Of a tuple or list its elements, of a dictionary key, value, key, value, …, in the order in
  // which they were set, of a call the global and the tuple of its arguments, of a persistent value
  // its id.
  std::span<const PickleValue> items(const PickleValue& value) const;

 private:
  friend class PickleMachine;
  std::string bytes_;  // a copy: the file may change
  std::span<const std::string_view> globals_;
  std::vector<PickleValue> items_;                    // of tuples, calls, persistent values
  std::vector<std::vector<PickleValue>> containers_;  // lists and dictionaries, which may grow
  PickleValue root_;
};

// "a number", "a text", …, for messages.
std::string_view describe(PickleKind kind);

}  // namespace lumen::io
