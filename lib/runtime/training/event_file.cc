#include "lib/runtime/training/event_file.h"

#include <array>
#include <bit>
#include <cstring>

namespace lumen::runtime {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

template <typename T>
void append_raw(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

// --- Protocol buffers: the few parts that an Event has ------------------------------------------

enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_tag(std::string& out, int field, WireType type) {
  append_varint(out, static_cast<uint64_t>(field) << 3 | type);
}

void append_bytes(std::string& out, int field, std::string_view bytes) {
  append_tag(out, field, kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

std::string event(double wall_time) {
  std::string out;
  append_tag(out, 1, kFixed64);
  append_raw(out, wall_time);
  return out;
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
      table[i] = value;
    }
    return table;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~crc;
}

std::string tfrecord(std::string_view payload) {
  std::string length, out;
  append_raw(length, static_cast<uint64_t>(payload.size()));
  out = length;
  append_raw(out, masked_crc32c(length));
  out += payload;
  append_raw(out, masked_crc32c(payload));
  return out;
}

std::string event_file_header(double wall_time) {
  std::string payload = event(wall_time);
  append_bytes(payload, 3, "brain.Event:2");
  return tfrecord(payload);
}

std::string scalar_event(double wall_time, int64_t step,
                         std::span<const std::pair<std::string, double>> values) {
  std::string summary;
  for (const auto& [name, number] : values) {
    std::string value;
    append_bytes(value, 1, name);
    append_tag(value, 2, kFixed32);
    append_raw(value, static_cast<float>(number));
    append_bytes(summary, 1, value);
  }
  std::string payload = event(wall_time);
  append_tag(payload, 2, kVarint);
  append_varint(payload, static_cast<uint64_t>(step));
  append_bytes(payload, 5, summary);
  return tfrecord(payload);
}

}  // namespace lumen::runtime
