#include "lib/io/gguf.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <span>

#include "lib/base/checked.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/byte_reader.h"
#include "lib/io/mapped_file.h"
#include "lib/io/shard_index.h"
#include "lib/io/zero_tail.h"

namespace lumen::io {
namespace {

// Types of tensors in GGUF files (ggml's enumeration). Numbers that are missing were removed.
struct GgmlType {
  uint32_t number;
  std::string_view name;
  uint32_t block_elements, block_bytes;
};
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
};

const GgmlType* find_ggml_type(uint32_t number) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

constexpr std::string_view kUseAnother =
    "which Lumen cannot compute with; use a file in F16, Q8_0, Q4_0, a K-quant or IQ4_XS";

[[noreturn]] void fail_unknown_type(uint32_t number) {
  constexpr uint32_t kFirst = 97, kEnd = 400;  // of its ggml.h
  if (number >= kFirst && number < kEnd) {
    fail(ErrorKind::kUnsupported, "type ", number, ", one of ik_llama.cpp's own, ", kUseAnother);
  }
  fail(ErrorKind::kMalformed, "unknown type ", number);
}

std::optional<DType> dtype_of_ggml(uint32_t number) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kDTypes[i].ggml_type == static_cast<int>(number)) return static_cast<DType>(i);
  }
  return std::nullopt;
}

constexpr uint64_t kMinStringBytes = 8;                      // an empty string's length
constexpr uint64_t kMinArrayBytes = 4 + 8;                   // an empty array's type and count
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;             // length, a letter, type, a byte
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // length, a letter, dims, …

constexpr const char* kTensorsOfAllParts = "split.tensors.count";
constexpr const char* kNotOneModel =
    ": they are not of one model, or of two splits of it; take all parts from one place";

}  // namespace

// Parses one file into a GgufFile: its metadata, and its tensors appended to those of earlier
// parts.
class GgufParser {
 public:
  GgufParser(std::shared_ptr<const Buffer> buffer, const GgufOptions& options)
      : buffer_(std::move(buffer)),
        options_(options),
        reader_(std::span<const std::byte>(buffer_->data, buffer_->bytes)) {}

  void parse(GgufFile& file, GgufMetadata& metadata) {
    read_header(file);
    read_metadata(metadata);
    file.alignment = read_alignment(metadata);
    const size_t first = file.tensors.size();
    read_tensors(file);
    place_tensors(file, first);
    file.file_bytes += buffer_->bytes;
    file.parts.push_back(buffer_);
  }

 private:
  void read_header(GgufFile& file) {
    const std::span<const std::byte> all(buffer_->data, buffer_->bytes);
    if (all.size() < 4 || reader_.text(4) != "GGUF") {
      const std::string hint = content_hint(all);
      fail(ErrorKind::kMalformed, "not a GGUF file",
           hint.empty() ? str(": it begins with ",
                              quoted(std::string_view(reinterpret_cast<const char*>(all.data()),
                                                      std::min<size_t>(4, all.size()))),
                              ", expected 'GGUF'")
                        : ": " + hint);
    }
    file.version = reader_.read<uint32_t>();
    if (file.version != 0 && file.version % 65536 == 0) {
      fail(ErrorKind::kUnsupported, "a big-endian GGUF file; Lumen reads little-endian ones");
    }
    if (file.version != 2 && file.version != 3) {
      fail(ErrorKind::kMalformed, "GGUF version ", file.version, "; Lumen reads 2 and 3");
    }
    tensor_count_ = reader_.read<uint64_t>();
    key_count_ = reader_.read<uint64_t>();
    check_count(tensor_count_, limits::kGgufTensors, "tensors");
    check_count(key_count_, limits::kGgufKeys, "metadata keys");
    reader_.expect_items(tensor_count_, kMinTensorBytes, "tensors");
    reader_.expect_items(key_count_, kMinKeyBytes, "metadata keys");
  }

  static void check_count(uint64_t count, uint64_t limit, std::string_view what) {
    if (count > limit) {
      fail(ErrorKind::kMalformed, "the header claims ", count, " ", what, "; the limit is ", limit);
    }
  }

  void read_metadata(GgufMetadata& metadata) {
    section_begin_ = reader_.offset();
    metadata.entries_.reserve(key_count_);
    metadata.index_ = NameIndex(key_count_);
    const auto key_of = [&](uint32_t i) { return key_text(metadata.entries_[i]); };
    for (uint32_t i = 0; i < key_count_; ++i) {
      GgufEntry entry{};
      with_context([&] { return str("metadata key ", i + 1, " of ", key_count_); },
                   [&] {
                     const uint64_t bytes = reader_.read<uint64_t>();
                     if (bytes == 0 || bytes > limits::kGgufKeyBytes) {
                       fail(ErrorKind::kMalformed, "a name of ", bytes, " bytes; expected 1 to ",
                            limits::kGgufKeyBytes);
                     }
                     entry.key_offset = section_offset();
                     entry.key_bytes = static_cast<uint32_t>(bytes);
                     reader_.skip(bytes);
                   });
      metadata.entries_.push_back(entry);
      if (metadata.index_.insert(key_text(entry), i, key_of) != NameIndex::kNone) {
        fail(ErrorKind::kMalformed, "the metadata key ", quoted(key_text(entry)),
             " is there twice");
      }
      with_context([&] { return str("metadata key ", quoted(key_text(entry))); },
                   [&] { read_value(metadata, metadata.entries_.back()); });
    }
    const size_t bytes = reader_.offset() - section_begin_;
    metadata.section_.assign(reinterpret_cast<const char*>(buffer_->data) + section_begin_, bytes);
  }

  std::string_view key_text(const GgufEntry& entry) const {
    return {reinterpret_cast<const char*>(buffer_->data) + section_begin_ + entry.key_offset,
            entry.key_bytes};
  }

  // Where the reader is in the metadata section, which the limit keeps below 2³².
  uint32_t section_offset() const {
    const uint64_t offset = reader_.offset() - section_begin_;
    if (offset > limits::kGgufMetadataBytes) {
      fail(ErrorKind::kMalformed, "the metadata is longer than the limit of ",
           human_bytes(limits::kGgufMetadataBytes));
    }
    return static_cast<uint32_t>(offset);
  }

  void read_value(GgufMetadata& metadata, GgufEntry& entry) {
    entry.type = entry.element_type = read_type();
    if (entry.type == GgufType::kArray) {
      entry.element_type = read_type();
      entry.count = static_cast<uint32_t>(read_array_count());
    }
    entry.value_offset = section_offset();
    if (entry.element_type == GgufType::kString) {
      read_strings(metadata, entry);
    } else if (entry.element_type == GgufType::kArray) {
      skip_arrays(entry.count, 2);
    } else {
      skip_scalars(entry.element_type, entry.type == GgufType::kArray ? entry.count : 1);
    }
    section_offset();  // checks the end as well
  }

  uint64_t read_array_count() {
    const uint64_t count = reader_.read<uint64_t>();
    if (count > limits::kGgufArrayElements) {
      fail(ErrorKind::kMalformed, "an array of ", count, " elements; the limit is ",
           limits::kGgufArrayElements);
    }
    return count;
  }

  void skip_scalars(GgufType type, uint64_t count) {
    const uint64_t bytes = scalar_bytes(type);
    reader_.expect_items(count, bytes, "elements");
    reader_.skip(count * bytes);
  }

  // `count` arrays, the elements of another, that lie `depth` deep.
  void skip_arrays(uint64_t count, uint64_t depth) {
    if (depth > limits::kGgufArrayDepth) {
      fail(ErrorKind::kMalformed, "arrays lie in each other more than ", limits::kGgufArrayDepth,
           " deep, the limit");
    }
    reader_.expect_items(count, kMinArrayBytes, "arrays");
    for (uint64_t i = 0; i < count; ++i) {
      const GgufType type = read_type();
      const uint64_t elements = read_array_count();
      if (type == GgufType::kArray) {
        skip_arrays(elements, depth + 1);
      } else if (type == GgufType::kString) {
        reader_.expect_items(elements, kMinStringBytes, "strings");
        for (uint64_t j = 0; j < elements; ++j) read_string();
      } else {
        skip_scalars(type, elements);
      }
    }
  }

  void read_strings(GgufMetadata& metadata, GgufEntry& entry) {
    if (entry.type == GgufType::kString) {
      const uint64_t bytes = read_string();
      entry.value_offset += sizeof(uint64_t);
      entry.count = static_cast<uint32_t>(bytes);
      return;
    }
    reader_.expect_items(entry.count, kMinStringBytes, "strings");
    entry.first_string = static_cast<uint32_t>(metadata.string_offsets_.size());
    metadata.string_offsets_.reserve(metadata.string_offsets_.size() + entry.count);
    for (uint32_t i = 0; i < entry.count; ++i) {
      metadata.string_offsets_.push_back(section_offset());
      read_string();
    }
  }

  uint64_t read_string() {
    const uint64_t bytes = reader_.read<uint64_t>();
    if (bytes > limits::kGgufStringBytes) {
      fail(ErrorKind::kMalformed, "a string of ", bytes, " bytes; the limit is ",
           limits::kGgufStringBytes);
    }
    reader_.skip(bytes);
    return bytes;
  }

  GgufType read_type() {
    const uint32_t number = reader_.read<uint32_t>();
    if (number > static_cast<uint32_t>(GgufType::kF64)) {
      fail(ErrorKind::kMalformed, "value type ", number, "; expected 0 to 12");
    }
    return static_cast<GgufType>(number);
  }

  static uint32_t read_alignment(const GgufMetadata& metadata) {
    const auto value = metadata.find("general.alignment");
    if (!value) return 32;
    const int64_t alignment = value->type() == GgufType::kU32 ? value->as_int() : -1;
    if (alignment < 1 || alignment > static_cast<int64_t>(limits::kGgufAlignment) ||
        !std::has_single_bit(static_cast<uint64_t>(alignment))) {
      fail(ErrorKind::kMalformed,
           "key 'general.alignment': expected a u32 that is a power of two up to ",
           limits::kGgufAlignment,
           alignment < 0 ? str("; found type ", name(value->type())) : str("; found ", alignment));
    }
    return static_cast<uint32_t>(alignment);
  }

  void read_tensors(GgufFile& file) {
    reader_.expect_items(tensor_count_, kMinTensorBytes, "tensors");
    file.tensors.reserve(file.tensors.size() + tensor_count_);
    for (uint64_t i = 0; i < tensor_count_; ++i) {
      GgufTensor tensor;
      tensor.part = static_cast<uint32_t>(file.parts.size());
      with_context([&] { return str("tensor ", i + 1, " of ", tensor_count_); },
                   [&] {
                     const uint64_t bytes = reader_.read<uint64_t>();
                     if (bytes == 0 || bytes > limits::kGgufTensorNameBytes) {
                       fail(ErrorKind::kMalformed, "a name of ", bytes, " bytes; expected 1 to ",
                            limits::kGgufTensorNameBytes);
                     }
                     tensor.name = reader_.text(bytes);
                   });
      with_context([&] { return str("tensor ", quoted(tensor.name)); },
                   [&] { read_tensor(tensor); });
      file.tensors.push_back(std::move(tensor));
    }
  }

  void read_tensor(GgufTensor& tensor) {
    const uint32_t dims = reader_.read<uint32_t>();
    if (dims < 1 || dims > limits::kGgufTensorDims) {
      fail(ErrorKind::kMalformed, dims, " dimensions; expected 1 to ", limits::kGgufTensorDims);
    }
    std::array<int64_t, limits::kGgufTensorDims> extents{};  // the file has the innermost first
    Checked elements = 1;
    for (uint32_t d = 0; d < dims; ++d) {
      const uint64_t extent = reader_.read<uint64_t>();
      if (extent == 0) fail(ErrorKind::kMalformed, "extent ", d, " is zero");
      extents[dims - 1 - d] = narrow<int64_t>(extent);
      elements = elements * extent;
    }
    narrow<int64_t>(elements.value());
    tensor.shape = Shape(std::span<const int64_t>(extents.data(), dims));
    tensor.ggml_type = reader_.read<uint32_t>();
    const GgmlType* type = find_ggml_type(tensor.ggml_type);
    if (type == nullptr) fail_unknown_type(tensor.ggml_type);
    if (tensor.shape[-1] % type->block_elements != 0) {
      fail(ErrorKind::kMalformed, "rows of ", tensor.shape[-1], " elements are no multiple of the ",
           type->block_elements, " of a block of ", type->name);
    }
    const Checked bytes = Checked(elements.value() / type->block_elements) * type->block_bytes;
    tensor.bytes = narrow<size_t>(bytes.value());
    tensor.dtype = dtype_of_ggml(tensor.ggml_type);
    tensor.offset = reader_.read<uint64_t>();
  }

  // Checks that the tensors lie in the file and do not overlap, in whatever order and with whatever
  // gaps, and turns their offsets, which count from the data section's start, into offsets in the
  // file.
  void place_tensors(GgufFile& file, size_t first) {
    const uint64_t header_end = reader_.offset();
    const uint64_t data_begin = Checked(header_end).align_up(file.alignment).value();
    std::vector<uint32_t> order;
    for (size_t i = first; i < file.tensors.size(); ++i) order.push_back(static_cast<uint32_t>(i));
    const auto begin_of = [&](uint32_t i) { return file.tensors[i].offset; };
    const auto is_before = [&](uint32_t a, uint32_t b) { return begin_of(a) < begin_of(b); };
    if (!std::is_sorted(order.begin(), order.end(), is_before)) {
      std::stable_sort(order.begin(), order.end(), is_before);
    }
    uint64_t end = header_end;  // of the data so far
    const GgufTensor* last = nullptr;
    for (const uint32_t i : order) {
      GgufTensor& tensor = file.tensors[i];
      with_context([&] { return str("tensor ", quoted(tensor.name)); },
                   [&] {
                     if (tensor.offset % file.alignment != 0) {
                       fail(ErrorKind::kMalformed, "its data are at offset ", tensor.offset,
                            ", expected a multiple of the alignment, ", file.alignment);
                     }
                     tensor.offset = (Checked(data_begin) + tensor.offset).value();
                     if (last != nullptr && tensor.offset < end) {
                       fail(ErrorKind::kMalformed, "its data, from byte ", tensor.offset,
                            " on, overlap those of ", quoted(last->name), ", up to byte ", end);
                     }
                     end = (Checked(tensor.offset) + tensor.bytes).value();
                     if (end > buffer_->bytes && !options_.header_only) {
                       fail(ErrorKind::kMalformed, "bytes ", tensor.offset, " to ", end,
                            " are past the end of the file of ", buffer_->bytes,
                            " bytes (truncated download?)");
                     }
                   });
      last = &tensor;
    }
    check_end(end, Checked(end).align_up(file.alignment).value());
    if (!options_.header_only && last != nullptr) check_tail(file, order);
  }

  // `order`: that of the tensors' data.
  void check_tail(const GgufFile& file, std::span<const uint32_t> order) const {
    std::vector<TensorBytes> tensors;
    for (const uint32_t i : order) {
      const GgufTensor& tensor = file.tensors[i];
      tensors.push_back({tensor.name, {buffer_->data + tensor.offset, tensor.bytes}});
    }
    if (!ends_in_zeros(tensors)) return;
    fail(ErrorKind::kMalformed, "tensor ", quoted(tensors.back().name),
         ", the last of the file, is zero: ", "an interrupted download? Get the file again");
  }

  // The file ends with the last tensor's data, which most writers pad to the alignment; a part of
  // the padding means that the file was cut.
  void check_end(uint64_t end, uint64_t padded_end) const {
    const uint64_t bytes = buffer_->bytes;
    if (bytes == end || bytes == padded_end) return;
    if (bytes < padded_end && !options_.header_only) {
      fail(ErrorKind::kMalformed, "the file has ", bytes, " bytes, expected ", padded_end,
           " (truncated download?)");
    }
    if (bytes > padded_end && !options_.allow_trailing) {
      fail(ErrorKind::kMalformed, "the data end at byte ", padded_end, ", but the file has ", bytes,
           " bytes");
    }
  }

  std::shared_ptr<const Buffer> buffer_;
  const GgufOptions& options_;
  ByteReader reader_;
  uint64_t tensor_count_ = 0, key_count_ = 0;
  uint64_t section_begin_ = 0;
};

namespace {

void index_tensors(GgufFile& file) {
  file.tensor_index = NameIndex(file.tensors.size());
  const auto name_of = [&](uint32_t i) -> std::string_view { return file.tensors[i].name; };
  for (uint32_t i = 0; i < file.tensors.size(); ++i) {
    const std::string& name = file.tensors[i].name;
    const uint32_t first = file.tensor_index.insert(name, i, name_of);
    if (first == NameIndex::kNone) continue;
    const uint32_t part = file.tensors[first].part, other = file.tensors[i].part;
    if (part != other) {
      fail(ErrorKind::kMalformed, "the tensor ", quoted(name), " is in parts ", part + 1, " and ",
           other + 1, kNotOneModel);
    }
    fail(ErrorKind::kMalformed, "the tensor ", quoted(name), " is there twice");
  }
}

// A path "PREFIX-00002-of-00005.gguf" taken apart.
struct SplitName {
  std::string prefix;
  uint64_t part = 0, count = 0;  // part counts from 0

  std::string path(uint64_t i) const { return prefix + shard_suffix(i + 1, count) + ".gguf"; }
};

std::optional<SplitName> parse_split_name(const std::string& path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (path.size() <= kPattern.size()) return std::nullopt;
  const std::string_view tail = std::string_view(path).substr(path.size() - kPattern.size());
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool fits =
        kPattern[i] == '0' ? tail[i] >= '0' && tail[i] <= '9' : tail[i] == kPattern[i];
    if (!fits) return std::nullopt;
  }
  SplitName name{path.substr(0, path.size() - kPattern.size())};
  std::from_chars(tail.data() + 1, tail.data() + 6, name.part);
  std::from_chars(tail.data() + 10, tail.data() + 15, name.count);
  if (name.part < 1 || name.part > name.count) return std::nullopt;
  --name.part;
  return name;
}

// `metadata` of part `part` of `count`; `first` of part 0.
void check_split(const GgufMetadata& metadata, const GgufMetadata& first, uint64_t part,
                 uint64_t count) {
  const int64_t found_count = metadata.get_int("split.count", 0, limits::kShards);
  const int64_t found_part = metadata.get_int("split.no", 0, limits::kShards);
  if (found_count != static_cast<int64_t>(count) || found_part != static_cast<int64_t>(part)) {
    fail(ErrorKind::kMalformed, "it says to be part ", found_part + 1, " of ", found_count,
         ", its name says part ", part + 1, " of ", count);
  }
  const auto tensors = [](const GgufMetadata& from) {
    return from.get_int(kTensorsOfAllParts, 0, std::numeric_limits<int64_t>::max(), 0);
  };
  if (const int64_t here = tensors(metadata), there = tensors(first);
      here != 0 && there != 0 && here != there) {
    fail(ErrorKind::kMalformed, "it is of a model of ", here, " tensors, part 1 of one of ", there,
         kNotOneModel);
  }
}

// Which file a path names; all 0 if none.
struct FileIdentity {
  uint64_t device = 0, inode = 0;
  int64_t seconds = 0, nanoseconds = 0;  // when its content was changed
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

FileIdentity identity(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

// Opens all parts of the split model that `name` belongs to. Who replaces them (write_parts)
// removes the first part before the others and lets it appear last: if it is the same file before
// and afterwards, all that was opened in between is of one set.
std::shared_ptr<const GgufFile> read_parts(const SplitName& name, const GgufOptions& options) {
  if (name.count > limits::kShards) {
    fail(ErrorKind::kMalformed, place_of(name.path(name.part)), ": ", name.count,
         " parts; the limit is ", limits::kShards);
  }
  auto file = std::make_shared<GgufFile>();
  file->path = name.path(0);
  const FileIdentity first = identity(file->path);
  for (uint64_t i = 0; i < name.count; ++i) {
    const std::string path = name.path(i);
    if (i != name.part && !is_regular_file(path)) {
      fail(ErrorKind::kMissing, place_of(path), ": no such file; it is part ", i + 1, " of ",
           name.count, " of the model, which needs them all beside each other");
    }
    const auto buffer = map_file(path);
    file->part_paths.push_back(path);
    with_context(place_of(path), [&] {
      GgufMetadata other;
      GgufMetadata& metadata = i == 0 ? file->metadata : other;
      GgufParser(buffer, options).parse(*file, metadata);
      check_split(metadata, file->metadata, i, name.count);
    });
  }
  if (!(identity(file->path) == first)) {
    fail(ErrorKind::kIo, place_of(file->path),
         ": the parts of the model were replaced while they were opened: try again");
  }
  with_context(place_of(file->path), [&] {
    index_tensors(*file);
    const auto total = static_cast<int64_t>(file->tensors.size());
    const int64_t said =
        file->metadata.get_int(kTensorsOfAllParts, 0, std::numeric_limits<int64_t>::max(), total);
    if (said != total) {
      fail(ErrorKind::kMalformed, "the ", name.count, " parts have ", total, " tensors, key ",
           quoted(kTensorsOfAllParts), " says ", said, kNotOneModel);
    }
  });
  return file;
}

}  // namespace

std::string ggml_type_name(uint32_t ggml_type) {
  const GgmlType* type = find_ggml_type(ggml_type);
  return type != nullptr ? std::string(type->name) : str("type ", ggml_type);
}

const GgufTensor* GgufFile::find_tensor(std::string_view tensor) const {
  const uint32_t i =
      tensor_index.find(tensor, [&](uint32_t n) -> std::string_view { return tensors[n].name; });
  return i == NameIndex::kNone ? nullptr : &tensors[i];
}

Array GgufFile::array(const GgufTensor& tensor) const {
  if (!tensor.dtype) {
    fail(ErrorKind::kUnsupported, place_of(path), ": tensor ", quoted(tensor.name),
         " has the type ", ggml_type_name(tensor.ggml_type), ", ", kUseAnother);
  }
  const Buffer& part = *parts[tensor.part];
  if (tensor.offset > part.bytes || tensor.bytes > part.bytes - tensor.offset) {
    fail(ErrorKind::kMalformed, place_of(path), ": the data of tensor ", quoted(tensor.name),
         " are not in the file");  // possible if only the header was asked for
  }
  return mapped_array(parts[tensor.part], tensor.offset, *tensor.dtype, tensor.shape);
}

std::shared_ptr<const GgufFile> parse_gguf(std::shared_ptr<const Buffer> bytes,
                                           const std::string& path, const GgufOptions& options) {
  auto file = std::make_shared<GgufFile>();
  file->path = path;
  file->part_paths = {path};
  with_context(place_of(path), [&] {
    GgufParser(std::move(bytes), options).parse(*file, file->metadata);
    index_tensors(*file);
  });
  return file;
}

std::shared_ptr<const GgufFile> read_gguf(const std::string& path, const GgufOptions& options) {
  auto file = parse_gguf(map_file(path), path, options);
  const int64_t count = with_context(
      place_of(path), [&] { return file->metadata.get_int("split.count", 0, limits::kShards, 0); });
  if (count < 2) return file;
  const auto split = parse_split_name(path);
  if (!split) {
    fail(ErrorKind::kMalformed, place_of(path), ": it is one of ", count,
         " parts, and its name does not end as in '-00001-of-0000N.gguf': restore the original "
         "names, or join the parts with llama-gguf-split --merge");
  }
  return read_parts(*split, options);
}

std::shared_ptr<const GgufFile> read_if_gguf(const std::string& path) {
  if (!is_regular_file(path)) return nullptr;
  {
    const auto buffer = map_file(path);  // mapped twice it may not fit into the address space
    if (buffer->bytes < 4 || std::memcmp(buffer->data, "GGUF", 4) != 0) return nullptr;
  }
  return read_gguf(path);
}

bool is_later_part(const std::string& path) {
  const auto split = parse_split_name(path);
  return split && split->part > 0;
}

}  // namespace lumen::io
