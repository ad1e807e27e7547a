// GgufValue and GgufMetadata: typed access to the metadata of a GGUF file.
#include <cstring>
#include <limits>

#include "lib/base/error.h"
#include "lib/io/gguf.h"

namespace lumen::io {
namespace {

constexpr std::string_view kTypeNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};

bool is_integer(GgufType type) {
  return type != GgufType::kF32 && type != GgufType::kF64 && type != GgufType::kBool &&
         type != GgufType::kString && type != GgufType::kArray;
}

template <typename T>
T load(std::string_view payload) {
  T value;
  LUMEN_CHECK(payload.size() >= sizeof value);
  std::memcpy(&value, payload.data(), sizeof value);
  return value;
}

std::string type_text(const GgufValue& value) {
  if (value.is_array()) return str("an array of ", name(value.element_type()));
  return str("a value of type ", name(value.type()));
}

[[noreturn]] void fail_type(const GgufValue& value, std::string_view expected) {
  fail(ErrorKind::kMalformed, "key ", quoted(value.key()), ": found ", type_text(value),
       ", expected ", expected);
}

// The integer of `type` encoded in `payload`.
int64_t load_int(const GgufValue& value, GgufType type, std::string_view payload) {
  switch (type) {
    case GgufType::kU8:
      return load<uint8_t>(payload);
    case GgufType::kI8:
      return load<int8_t>(payload);
    case GgufType::kU16:
      return load<uint16_t>(payload);
    case GgufType::kI16:
      return load<int16_t>(payload);
    case GgufType::kU32:
      return load<uint32_t>(payload);
    case GgufType::kI32:
      return load<int32_t>(payload);
    case GgufType::kI64:
      return load<int64_t>(payload);
    case GgufType::kU64: {
      const auto natural = load<uint64_t>(payload);
      if (natural > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail(ErrorKind::kMalformed, "key ", quoted(value.key()), ": the number ", natural,
             " is too large");
      }
      return static_cast<int64_t>(natural);
    }
    default:
      fail_type(value, value.is_array() ? "an array of integers" : "an integer");
  }
}

double load_number(const GgufValue& value, GgufType type, std::string_view payload) {
  if (type == GgufType::kF32) return load<float>(payload);
  if (type == GgufType::kF64) return load<double>(payload);
  if (type == GgufType::kU64) return static_cast<double>(load<uint64_t>(payload));
  if (!is_integer(type)) fail_type(value, value.is_array() ? "an array of numbers" : "a number");
  return static_cast<double>(load_int(value, type, payload));
}

}  // namespace

std::string_view name(GgufType type) {
  return kTypeNames[static_cast<size_t>(type)];
}

size_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    default:
      return 4;
  }
}

const GgufEntry& GgufValue::entry() const {
  return metadata_->entries_[entry_];
}

std::string_view GgufValue::payload(size_t i) const {
  LUMEN_CHECK(is_array() ? i < entry().count : i == 0);
  const size_t bytes = scalar_bytes(entry().element_type);
  return metadata_->text(entry().value_offset + i * bytes, bytes);
}

std::string_view GgufValue::encoded() const {
  LUMEN_CHECK(entry().element_type != GgufType::kString);
  if (is_array() && element_type() == GgufType::kArray) {
    // Up to the next key, which begins with its length.
    const bool is_last = entry_ + 1 == metadata_->size();
    const size_t end = is_last ? metadata_->section_.size()
                               : metadata_->entries_[entry_ + 1].key_offset - sizeof(uint64_t);
    return metadata_->text(entry().value_offset, end - entry().value_offset);
  }
  const size_t count = is_array() ? entry().count : 1;
  return metadata_->text(entry().value_offset, count * scalar_bytes(entry().element_type));
}

std::string_view GgufValue::key() const {
  return metadata_->text(entry().key_offset, entry().key_bytes);
}
GgufType GgufValue::type() const {
  return entry().type;
}

int64_t GgufValue::as_int() const {
  if (!is_integer(type())) fail_type(*this, "an integer");
  return load_int(*this, type(), payload(0));
}

double GgufValue::as_number() const {
  if (is_array() || is_string()) fail_type(*this, "a number");
  return load_number(*this, type(), payload(0));
}

bool GgufValue::as_bool() const {
  if (type() != GgufType::kBool) fail_type(*this, "a bool");
  return load<uint8_t>(payload(0)) != 0;
}

std::string_view GgufValue::as_string() const {
  if (!is_string()) fail_type(*this, "a string");
  return metadata_->text(entry().value_offset, entry().count);
}

GgufType GgufValue::element_type() const {
  if (!is_array()) fail_type(*this, "an array");
  return entry().element_type;
}

size_t GgufValue::size() const {
  if (!is_array()) fail_type(*this, "an array");
  return entry().count;
}

int64_t GgufValue::int_at(size_t i) const {
  if (!is_integer(element_type())) fail_type(*this, "an array of integers");
  return load_int(*this, entry().element_type, payload(i));
}

double GgufValue::number_at(size_t i) const {
  if (element_type() == GgufType::kString || element_type() == GgufType::kArray) {
    fail_type(*this, "an array of numbers");
  }
  return load_number(*this, entry().element_type, payload(i));
}

bool GgufValue::bool_at(size_t i) const {
  if (element_type() != GgufType::kBool) fail_type(*this, "an array of bools");
  return load<uint8_t>(payload(i)) != 0;
}

std::string_view GgufValue::string_at(size_t i) const {
  if (element_type() != GgufType::kString) fail_type(*this, "an array of strings");
  LUMEN_CHECK(i < entry().count);
  const uint32_t at = metadata_->string_offsets_[entry().first_string + i];
  const auto bytes = load<uint64_t>(metadata_->text(at, sizeof(uint64_t)));
  return metadata_->text(at + sizeof(uint64_t), bytes);
}

std::optional<GgufValue> GgufMetadata::find(std::string_view key) const {
  const uint32_t entry = index_.find(key, [&](uint32_t i) { return (*this)[i].key(); });
  if (entry == NameIndex::kNone) return std::nullopt;
  return (*this)[entry];
}

GgufValue GgufMetadata::get(std::string_view key) const {
  const auto value = find(key);
  if (!value) fail(ErrorKind::kMalformed, "the key ", quoted(key), " is missing");
  return *value;
}

int64_t GgufMetadata::get_int(std::string_view key, int64_t lo, int64_t hi) const {
  const int64_t number = get(key).as_int();
  if (number < lo || number > hi) {
    fail(ErrorKind::kMalformed, "key ", quoted(key), ": found ", number,
         ", expected an integer from ", lo, " to ", hi);
  }
  return number;
}

int64_t GgufMetadata::get_int(std::string_view key, int64_t lo, int64_t hi,
                              int64_t fallback) const {
  return find(key) ? get_int(key, lo, hi) : fallback;
}

double GgufMetadata::get_number(std::string_view key) const {
  return get(key).as_number();
}
double GgufMetadata::get_number(std::string_view key, double fallback) const {
  const auto value = find(key);
  return value ? value->as_number() : fallback;
}

bool GgufMetadata::get_bool(std::string_view key, bool fallback) const {
  const auto value = find(key);
  return value ? value->as_bool() : fallback;
}

std::string_view GgufMetadata::get_string(std::string_view key) const {
  return get(key).as_string();
}
std::string_view GgufMetadata::get_string(std::string_view key, std::string_view fallback) const {
  const auto value = find(key);
  return value ? value->as_string() : fallback;
}

}  // namespace lumen::io
