// GGUF files, versions 2 and 3, little-endian, single or split: metadata and tensor table.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/io/name_index.h"
#include "lib/tensor/array.h"

namespace lumen::io {

// Types of metadata values, numbered as in the file.
enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
std::string_view name(GgufType type);
// Bytes of one value of a number type or bool.
size_t scalar_bytes(GgufType type);

class GgufMetadata;
struct GgufEntry;

// A value of the metadata: a view that is valid while its GgufFile lives. The accessors convert
// among number types and throw Error(kMalformed) naming key, found and expected type otherwise.
class GgufValue {
 public:
  std::string_view key() const;
  GgufType type() const;
  bool is_string() const { return type() == GgufType::kString; }
  bool is_array() const { return type() == GgufType::kArray; }

  int64_t as_int() const;    // any integer type, if it fits
  double as_number() const;  // any integer or floating-point type
  bool as_bool() const;
  std::string_view as_string() const;  // not necessarily UTF-8

  // Arrays: their elements, by index < size(). Of arrays of arrays, which no known model has, only
  // the number is told.
  GgufType element_type() const;
  size_t size() const;
  int64_t int_at(size_t i) const;
  double number_at(size_t i) const;
  bool bool_at(size_t i) const;
  std::string_view string_at(size_t i) const;

  // A number or bool, or all elements of an array of them or of arrays, as they lie in the file.
  std::string_view encoded() const;

 private:
  friend class GgufMetadata;
  GgufValue(const GgufMetadata& metadata, size_t entry) : metadata_(&metadata), entry_(entry) {}
  const GgufEntry& entry() const;
  std::string_view payload(size_t i) const;  // of a number, or of an array's i-th number
  const GgufMetadata* metadata_;
  size_t entry_;
};

// Where a key-value pair lies in the metadata section.
struct GgufEntry {
  uint32_t key_offset;  // into the section
  uint32_t key_bytes;
  GgufType type;
  GgufType element_type;  // of an array; otherwise = type
  uint32_t value_offset;  // into the section: payload of a scalar, first element of an array
  uint32_t count;         // elements of an array, bytes of a string
  uint32_t first_string;  // into the table of strings, for an array of strings
};

// The key-value pairs of a file, in its order. Holds a copy of the encoded section (a change of
// the mapped file cannot reach validated lengths) and small tables: memory ≤ 4 × its encoded size
// + 1 MiB. Reading from several threads is safe.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  GgufMetadata(GgufMetadata&&) = delete;  // values point to it; it lives inside its GgufFile

  size_t size() const { return entries_.size(); }
  GgufValue operator[](size_t i) const { return GgufValue(*this, i); }
  std::optional<GgufValue> find(std::string_view key) const;

  // Typed lookups; they throw Error(kMalformed) naming the key when it is absent (unless a
  // fallback is given), of another type, or out of [lo, hi].
  int64_t get_int(std::string_view key, int64_t lo, int64_t hi) const;
  int64_t get_int(std::string_view key, int64_t lo, int64_t hi, int64_t fallback) const;
  double get_number(std::string_view key) const;
  double get_number(std::string_view key, double fallback) const;
  bool get_bool(std::string_view key, bool fallback) const;
  std::string_view get_string(std::string_view key) const;
  std::string_view get_string(std::string_view key, std::string_view fallback) const;

 private:
  friend class GgufValue;
  friend class GgufParser;
  GgufValue get(std::string_view key) const;
  std::string_view text(uint64_t offset, uint64_t bytes) const {
    return std::string_view(section_).substr(offset, bytes);
  }

  std::string section_;
  std::vector<GgufEntry> entries_;
  std::vector<uint32_t> string_offsets_;  // of the length field of every string of an array
  NameIndex index_;
};

struct GgufTensor {
  std::string name;
  uint32_t ggml_type = 0;      // as in the file
  std::optional<DType> dtype;  // absent for the types Lumen does not compute with
  uint32_t part = 0;           // index into GgufFile::parts
  Shape shape;                 // row-major: the reverse of the file's order; 1 to 4 extents ≥ 1
  uint64_t offset = 0;         // of the data in its part, from the start of that file
  uint64_t bytes = 0;
};
// "Q4_K", "IQ4_XS", …; "type 99" for a number that is none.
std::string ggml_type_name(uint32_t ggml_type);

struct GgufOptions {
  bool allow_trailing = false;  // accept bytes after the tensors' data
  bool header_only = false;     // accept that the data section is cut short or absent
};

// An open GGUF file. Immutable; the data stay mapped while it or an array lives.
struct GgufFile {
  std::string path;      // of the first part
  uint32_t version = 0;  // 2 or 3
  uint32_t alignment = 32;
  GgufMetadata metadata;            // of the first part, which has all of the model's
  std::vector<GgufTensor> tensors;  // of all parts, in file order
  std::vector<std::shared_ptr<const Buffer>> parts;
  std::vector<std::string> part_paths;
  uint64_t file_bytes = 0;  // of all parts
  NameIndex tensor_index;

  const GgufTensor* find_tensor(std::string_view name) const;
  // The data, mapped. Throws Error(kUnsupported) naming the tensor and its type if Lumen has no
  // such element type.
  Array array(const GgufTensor& tensor) const;
};

// Opens a GGUF file by its header; tensor data are not touched. If it is part of a split model
// ("…-00001-of-00003.gguf", key split.count), its sibling parts are opened too; any part may be
// named. Linear in the size of the header.
//
// Refuses, with Error(kMalformed) naming the place: other magic or version, counts and lengths that
// cannot fit, sizes that overflow, limits.h, empty or duplicate keys and tensor names, unknown
// types, alignments that are no power of two, rows that are no multiple of their block, extents of
// zero, tensors that overlap, are not aligned or past the end, and trailing bytes. Gaps between
// tensors, and tensors whose data are in another order, are none of our business. kUnsupported for
// a big-endian file; kMissing and kIo as map_file.
std::shared_ptr<const GgufFile> read_gguf(const std::string& path, const GgufOptions& options = {});

// The same if `path` is a file that begins as GGUF files do; null for anything else.
std::shared_ptr<const GgufFile> read_if_gguf(const std::string& path);

// Whether a file of this name is a part of a split model other than its first.
bool is_later_part(const std::string& path);

// The same for bytes in memory; `path` is for messages only. Split files are not followed.
std::shared_ptr<const GgufFile> parse_gguf(std::shared_ptr<const Buffer> bytes,
                                           const std::string& path,
                                           const GgufOptions& options = {});

}  // namespace lumen::io
