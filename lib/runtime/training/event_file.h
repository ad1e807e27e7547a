// TensorBoard event files: TFRecord frames of Event protocol buffers, written without either.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace lumen::runtime {

// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as TFRecord checks its frames.
uint32_t crc32c(std::string_view bytes);

// One frame: u64 length, masked CRC of the length, `payload`, masked CRC of the payload.
std::string tfrecord(std::string_view payload);

// The record every file begins with (file_version "brain.Event:2").
std::string event_file_header(double wall_time);

// A record of scalar values at `step`; `wall_time` in seconds since 1970.
std::string scalar_event(double wall_time, int64_t step,
                         std::span<const std::pair<std::string, double>> values);

}  // namespace lumen::runtime
