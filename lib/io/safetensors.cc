#include "lib/io/safetensors.h"

#include <algorithm>

#include "lib/base/checked.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/byte_reader.h"
#include "lib/io/json.h"
#include "lib/io/json_scanner.h"
#include "lib/io/mapped_file.h"
#include "lib/io/name_index.h"
#include "lib/io/shard_index.h"

namespace lumen::io {
namespace {

// Bits per element of the types in the format's specification.
constexpr struct {
  std::string_view name;
  uint64_t bits;
} kTypes[] = {
    {"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},    {"BF16", 16},
    {"I32", 32},    {"U32", 32}, {"F32", 32}, {"I64", 64},    {"U64", 64},
    {"F64", 64},    {"C64", 64}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

uint64_t bits_of(const std::string& type) {
  for (const auto& known : kTypes) {
    if (known.name == type) return known.bits;
  }
  fail(ErrorKind::kMalformed, "unknown dtype ", quoted(type));
}

std::optional<DType> dtype_of(const std::string& type) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kDTypes[i].safetensors == type) return static_cast<DType>(i);
  }
  return std::nullopt;
}

// Reads an object; member(key) reads the value of each key.
template <typename Member>
void read_object(JsonScanner& scan, Member member) {
  scan.expect('{', "an object");
  if (scan.accept('}')) return;
  do {
    const std::string key = scan.string();
    scan.expect(':', "':' after a key");
    member(key);
  } while (scan.accept(','));
  scan.expect('}', "',' or '}'");
}

// Reads an array of integers ≥ 0, at most `limit` of them.
std::vector<uint64_t> read_naturals(JsonScanner& scan, size_t limit) {
  std::vector<uint64_t> values;
  scan.expect('[', "an array");
  if (scan.accept(']')) return values;
  do {
    scan.peek();
    const size_t position = scan.position();
    const Json number = scan.number();
    if (!number.is_number_unsigned()) {
      scan.fail_at(position, str("found ", describe(&number), ", expected an integer ≥ 0"));
    }
    if (values.size() == limit) scan.fail_at(position, str("more than ", limit, " numbers"));
    values.push_back(number.get<uint64_t>());
  } while (scan.accept(','));
  scan.expect(']', "',' or ']'");
  return values;
}

// The members of a tensor's entry in the header.
struct Entry {
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape, range;
};

Entry read_entry(JsonScanner& scan) {
  Entry entry;
  read_object(scan, [&](const std::string& key) {
    if (key == "dtype" && !entry.dtype) {
      entry.dtype = scan.string();
    } else if (key == "shape" && !entry.shape) {
      entry.shape = read_naturals(scan, limits::kTensorDims);
    } else if (key == "data_offsets" && !entry.range) {
      entry.range = read_naturals(scan, 2);
    } else {
      scan.fail_here(str("the key ", quoted(key), " is unknown or there twice"));
    }
  });
  if (!entry.dtype || !entry.shape || !entry.range || entry.range->size() != 2) {
    scan.fail_here("expected 'dtype', 'shape' and two 'data_offsets' before");
  }
  return entry;
}

// The tensor of an entry; its offset still counts from the start of the data section.
SafetensorsTensor make_tensor(std::string name, Entry entry) {
  SafetensorsTensor tensor;
  tensor.name = std::move(name);
  tensor.type = std::move(*entry.dtype);
  tensor.dtype = dtype_of(tensor.type);
  Checked span = 1;  // elements, with empty axes as 1, so that no stride can overflow
  for (const uint64_t extent : *entry.shape) {
    tensor.shape.push_back(narrow<int64_t>(extent));
    span = span * std::max<uint64_t>(extent, 1);
  }
  narrow<int64_t>(span.value());
  const Checked elements = static_cast<uint64_t>(tensor.shape.elements());
  const uint64_t begin = (*entry.range)[0], end = (*entry.range)[1];
  const uint64_t bits = (elements * bits_of(tensor.type)).value();
  if (bits % 8 != 0) fail(ErrorKind::kMalformed, "its data are no whole number of bytes");
  if (end < begin || end - begin != bits / 8) {
    fail(ErrorKind::kMalformed, "shape ", to_string(tensor.shape), " of ", tensor.type, " needs ",
         bits / 8, " bytes, 'data_offsets' say ", begin, " to ", end);
  }
  tensor.offset = begin;
  tensor.bytes = bits / 8;
  return tensor;
}

using Metadata = std::vector<std::pair<std::string, std::string>>;

// MLX writes null where there are none.
Metadata read_metadata(JsonScanner& scan) {
  Metadata metadata;
  if (scan.accept_word("null")) return metadata;
  read_object(scan, [&](const std::string& key) { metadata.emplace_back(key, scan.string()); });
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : metadata) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) {
    fail(ErrorKind::kMalformed, "'__metadata__' has the key ", quoted(*twice), " twice");
  }
  return metadata;
}

// Reads the JSON header. It is not made a tree: a header of 100 MB would take a gigabyte.
void read_header(std::string_view text, SafetensorsFile& file) {
  const size_t first = file.tensors.size();
  std::optional<Metadata> metadata;
  JsonScanner scan(text);
  read_object(scan, [&](const std::string& key) {
    if (key == "__metadata__") {
      if (metadata) scan.fail_here("the key '__metadata__' is there twice");
      metadata = read_metadata(scan);
      return;
    }
    if (key.size() > limits::kTensorNameBytes) {
      scan.fail_here(
          str("a tensor name of ", key.size(), " bytes; the limit is ", limits::kTensorNameBytes));
    }
    with_context([&] { return str("tensor ", quoted(key)); },
                 [&] { file.tensors.push_back(make_tensor(key, read_entry(scan))); });
    file.tensors.back().part = static_cast<uint32_t>(file.parts.size());
  });
  scan.expect_end();
  check_unique_names(file.tensors, first);
  if (file.parts.empty() && metadata) file.metadata = std::move(*metadata);
}

// Checks that the tensors from `first` on partition the data section, bytes `data_begin` to the
// end of the file, and turns their offsets into offsets in the file.
void place_tensors(SafetensorsFile& file, size_t first, uint64_t data_begin, uint64_t file_bytes) {
  std::sort(file.tensors.begin() + static_cast<ptrdiff_t>(first), file.tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
            });
  uint64_t expected = 0;
  for (size_t i = first; i < file.tensors.size(); ++i) {
    SafetensorsTensor& tensor = file.tensors[i];
    if (tensor.offset != expected) {
      fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), ": its data begin at ",
           tensor.offset, ", expected ", expected, " (overlap or hole)");
    }
    expected = (Checked(expected) + tensor.bytes).value();
    tensor.offset = (Checked(data_begin) + tensor.offset).value();
  }
  const uint64_t end = (Checked(data_begin) + expected).value();
  if (end != file_bytes) {
    fail(ErrorKind::kMalformed, "the tensors end at byte ", end, ", but the file has ", file_bytes,
         " bytes", end > file_bytes ? " (truncated download?)" : "");
  }
}

// Adds one file to `file` as its next part.
void add_part(SafetensorsFile& file, std::shared_ptr<const Buffer> buffer) {
  const std::span<const std::byte> all(buffer->data, buffer->bytes);
  ByteReader reader(all);
  const uint64_t header_bytes = buffer->bytes < 8 ? 0 : reader.read<uint64_t>();
  const bool plausible = header_bytes >= 2 && header_bytes <= limits::kSafetensorsHeaderBytes;
  if (!plausible || header_bytes > reader.remaining()) {
    const bool has_header = all.size() > 8 && static_cast<char>(all[8]) == '{';
    if (const std::string hint = content_hint(all); !hint.empty() && !plausible && !has_header) {
      fail(ErrorKind::kMalformed, "not a safetensors file: ", hint);
    }
    fail(ErrorKind::kMalformed, "a header of ", header_bytes, " bytes in a file of ", buffer->bytes,
         " bytes", plausible ? " (truncated download?)" : "", "; the limits are 2 and ",
         limits::kSafetensorsHeaderBytes);
  }
  const size_t first = file.tensors.size();
  const std::string_view header = reader.text(header_bytes);
  with_context("header", [&] { read_header(header, file); });
  place_tensors(file, first, reader.offset(), buffer->bytes);
  file.file_bytes += buffer->bytes;
  file.parts.push_back(std::move(buffer));
}

}  // namespace

Array SafetensorsFile::array(const SafetensorsTensor& tensor) const {
  if (!tensor.dtype) {
    fail(ErrorKind::kUnsupported, place_of(path), ": tensor ", quoted(tensor.name),
         " has the dtype ", quoted(tensor.type), ", which Lumen cannot compute with");
  }
  return mapped_array(parts[tensor.part], tensor.offset, *tensor.dtype, tensor.shape);
}

NamedArrays SafetensorsFile::arrays() const {
  NamedArrays arrays;
  for (const SafetensorsTensor& tensor : tensors) arrays.emplace(tensor.name, array(tensor));
  return arrays;
}

std::shared_ptr<const SafetensorsFile> parse_safetensors(std::shared_ptr<const Buffer> bytes,
                                                         const std::string& path) {
  auto file = std::make_shared<SafetensorsFile>();
  file->path = path;
  with_context(place_of(path), [&] { add_part(*file, std::move(bytes)); });
  return file;
}

std::shared_ptr<const SafetensorsFile> read_safetensors(const std::string& path) {
  return parse_safetensors(map_file(path), path);
}

std::shared_ptr<const SafetensorsFile> read_safetensors_index(const std::string& index_path) {
  auto file = std::make_shared<SafetensorsFile>();
  read_shards(index_path, *file, add_part);
  return file;
}

}  // namespace lumen::io
