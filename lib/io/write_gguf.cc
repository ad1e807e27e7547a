#include "lib/io/write_gguf.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/atomic_file.h"
#include "lib/io/mapped_file.h"
#include "lib/io/shard_index.h"

namespace lumen::io {
namespace {

constexpr size_t kAlignment = 32;
// Value types of the format, in the order of GgufWriter::Value; arrays name their elements' type.
enum : uint32_t {
  kUint8 = 0,
  kUint16 = 2,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9
};

// Appends little-endian values, as they lie in memory.
class Bytes {
 public:
  template <typename T>
  void number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void raw(std::string_view bytes) { text_ += bytes; }
  void string(std::string_view text) {
    number<uint64_t>(text.size());
    raw(text);
  }
  template <typename T>
  void numbers(uint32_t type, const std::vector<T>& values) {
    number<uint32_t>(kArray);
    number(type);
    number<uint64_t>(values.size());
    for (const T& value : values) number(value);
  }
  void value(const GgufWriter::Value& value);
  void align() { text_.resize((text_.size() + kAlignment - 1) / kAlignment * kAlignment); }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void Bytes::value(const GgufWriter::Value& value) {
  if (auto* integer = std::get_if<uint32_t>(&value)) {
    number<uint32_t>(kUint32);
    number(*integer);
  } else if (auto* word = std::get_if<uint16_t>(&value)) {
    number<uint32_t>(kUint16);
    number(*word);
  } else if (auto* whole = std::get_if<int32_t>(&value)) {
    number<uint32_t>(kInt32);
    number(*whole);
  } else if (auto* real = std::get_if<float>(&value)) {
    number<uint32_t>(kFloat32);
    number(*real);
  } else if (auto* flag = std::get_if<bool>(&value)) {
    number<uint32_t>(kBool);
    number<uint8_t>(*flag ? 1 : 0);
  } else if (auto* text = std::get_if<std::string>(&value)) {
    number<uint32_t>(kString);
    string(*text);
  } else if (auto* reals = std::get_if<std::vector<float>>(&value)) {
    numbers(kFloat32, *reals);
  } else if (auto* integers = std::get_if<std::vector<int32_t>>(&value)) {
    numbers(kInt32, *integers);
  } else if (auto* flags = std::get_if<std::vector<bool>>(&value)) {
    numbers(kBool, *flags);
  } else if (auto* bytes = std::get_if<std::vector<uint8_t>>(&value)) {
    numbers(kUint8, *bytes);
  } else {
    const auto& texts = std::get<std::vector<std::string>>(value);
    number<uint32_t>(kArray);
    number<uint32_t>(kString);
    number<uint64_t>(texts.size());
    for (const std::string& element : texts) string(element);
  }
}

// The number of a tensor type in the format.
uint32_t type_number(DType dtype) {
  const int number = info(dtype).ggml_type;
  if (number < 0) {
    fail(ErrorKind::kUnsupported, "writing ", name(dtype), " tensors to GGUF is not supported");
  }
  return static_cast<uint32_t>(number);
}

// In the file, where each tensor is followed by zeros up to the next multiple of the alignment.
uint64_t padded_bytes(const PendingTensor& tensor) {
  return (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

std::string text_of(const GgufWriter::Value& value) {
  Bytes bytes;
  bytes.value(value);
  return bytes.text();
}

}  // namespace

void GgufWriter::set(std::string key, const Value& value) {
  metadata_.emplace_back(std::move(key), text_of(value));
}

void GgufWriter::replace(const std::string& key, const Value& value) {
  for (auto& [name, present] : metadata_) {
    if (name != key) continue;
    present = text_of(value);
    return;
  }
  set(key, value);
}

void GgufWriter::copy(const GgufValue& value) {
  Bytes bytes;
  bytes.number(static_cast<uint32_t>(value.type()));
  if (value.is_array()) {
    bytes.number(static_cast<uint32_t>(value.element_type()));
    bytes.number<uint64_t>(value.size());
  }
  if (value.is_string()) {
    bytes.string(value.as_string());
  } else if (value.is_array() && value.element_type() == GgufType::kString) {
    for (size_t i = 0; i < value.size(); ++i) bytes.string(value.string_at(i));
  } else {
    bytes.raw(value.encoded());
  }
  metadata_.emplace_back(value.key(), bytes.text());
}

void GgufWriter::add(std::string name, DType dtype, const Shape& shape,
                     std::function<Array()> make) {
  tensors_.push_back({std::move(name), dtype, shape, std::move(make)});
}

void GgufWriter::add(std::string name, const Array& array) {
  add(std::move(name), array.dtype(), array.shape(), [array] { return array; });
}

void GgufWriter::Content::set(std::string key, const Value& value) {
  metadata.emplace_back(std::move(key), text_of(value));
}

std::shared_ptr<const GgufFile> GgufWriter::read_back(const std::string& name) const {
  Content content;
  content.metadata = metadata_;
  const auto bytes = std::make_shared<std::string>(content.header());
  auto buffer = std::make_shared<Buffer>();
  buffer->data = reinterpret_cast<std::byte*>(bytes->data());
  buffer->bytes = bytes->size();
  buffer->owner = bytes;
  return parse_gguf(buffer, name);
}

std::string GgufWriter::Content::header() const {
  Bytes header;
  header.number<uint32_t>(0x46554747);  // "GGUF"
  header.number<uint32_t>(3);
  header.number<uint64_t>(tensors.size());
  header.number<uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata) {
    header.string(key);
    header.raw(value);
  }
  uint64_t offset = 0;
  for (const PendingTensor* tensor : tensors) {
    header.string(tensor->name);
    header.number<uint32_t>(static_cast<uint32_t>(tensor->shape.rank()));
    for (int axis = tensor->shape.rank() - 1; axis >= 0; --axis) {  // the innermost first
      header.number<uint64_t>(static_cast<uint64_t>(tensor->shape[axis]));
    }
    header.number(type_number(tensor->dtype));
    header.number(offset);
    offset += padded_bytes(*tensor);
  }
  header.align();
  return header.text();
}

uint64_t GgufWriter::Content::data_bytes() const {
  uint64_t total = 0;
  for (const PendingTensor* tensor : tensors) total += padded_bytes(*tensor);
  return total;
}

void GgufWriter::Content::write(AtomicFile& file) const {
  file.write(header());
  const std::string zeros(kAlignment, '\0');
  for (const PendingTensor* tensor : tensors) {
    const Array array = tensor->make();
    LUMEN_CHECK(array.dtype() == tensor->dtype && array.shape() == tensor->shape);
    file.write(std::span<const std::byte>(array.data(), array.bytes()));
    const size_t rest = array.bytes() % kAlignment;
    if (rest != 0) file.write(std::string_view(zeros).substr(rest));
  }
  file.finish();
}

GgufWriter::Content GgufWriter::whole() const {
  return {metadata_, divide(tensors_, ~uint64_t{0}).front()};
}

// The first has all metadata; each says which it is, in the types that llama.cpp insists on.
std::vector<GgufWriter::Content> GgufWriter::divided(uint64_t most_bytes) const {
  std::vector<PendingTensors> shares = divide(tensors_, most_bytes);
  if (shares.size() == 1) return {whole()};
  std::vector<Content> parts;
  for (size_t i = 0; i < shares.size(); ++i) {
    Content& part = parts.emplace_back();
    if (i == 0) part.metadata = metadata_;
    part.tensors = std::move(shares[i]);
    part.set("split.no", static_cast<uint16_t>(i));
    part.set("split.count", static_cast<uint16_t>(shares.size()));
    part.set("split.tensors.count", static_cast<int32_t>(tensors_.size()));
  }
  return parts;
}

std::string GgufWriter::header() const {
  return whole().header();
}

uint64_t GgufWriter::bytes() const {
  const Content content = whole();
  return content.header().size() + content.data_bytes();
}

void GgufWriter::write(const std::string& path) const {
  write_parts(path, ~uint64_t{0});
}

std::vector<std::string> GgufWriter::parts(const std::string& path, uint64_t most_bytes) const {
  const size_t count = divide(tensors_, most_bytes).size();
  if (count == 1) return {path};
  if (count > limits::kShards) {
    fail(ErrorKind::kUsage, place_of(path), ": would be ", count, " files, the limit is ",
         limits::kShards, ": let them be larger");
  }
  constexpr std::string_view kSuffix = ".gguf";
  std::string stem = path;
  if (stem.ends_with(kSuffix)) stem.resize(stem.size() - kSuffix.size());
  std::vector<std::string> paths;
  for (size_t i = 1; i <= count; ++i) {
    paths.push_back(str(stem, shard_suffix(i, count), kSuffix));
  }
  return paths;
}

void GgufWriter::write_parts(const std::string& path, uint64_t most_bytes) const {
  const std::vector<std::string> paths = parts(path, most_bytes);
  const std::vector<Content> contents = divided(most_bytes);
  uint64_t room = 0;
  for (const Content& content : contents) room += content.header().size() + content.data_bytes();
  std::vector<std::unique_ptr<AtomicFile>> files;
  for (size_t i = 0; i < paths.size(); ++i) {
    AtomicFile& file = *files.emplace_back(std::make_unique<AtomicFile>(paths[i]));
    file.require_room(room);
    contents[i].write(file);
    room -= file.bytes_written();
  }
  std::error_code ignored;  // it is replaced below all the same
  if (files.size() > 1) std::filesystem::remove(paths[0], ignored);
  for (size_t i = files.size(); i-- > 0;) files[i]->commit();
}

}  // namespace lumen::io
