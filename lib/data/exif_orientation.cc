#include "lib/data/exif_orientation.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace lumen::data {

int exif_orientation(std::span<const uint8_t> segment) {
  using std::string_view_literals::operator""sv;
  constexpr std::string_view kHead = "Exif\0\0"sv;
  constexpr size_t kHeaderBytes = 8, kEntryBytes = 12;  // of a TIFF file and of its directories
  constexpr uint64_t kOrientation = 274, kShort = 3;
  if (segment.size() < kHead.size() + kHeaderBytes ||
      !std::equal(kHead.begin(), kHead.end(), segment.begin())) {
    return 1;
  }
  const auto tiff = segment.subspan(kHead.size());
  const bool is_big_endian = tiff[0] == 'M';
  const auto number = [&](size_t at, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      value |= uint64_t{tiff[at + i]} << 8 * (is_big_endian ? bytes - 1 - i : i);
    }
    return value;
  };
  if (number(2, 2) != 42) return 1;
  const uint64_t directory = number(4, 4);
  if (directory > tiff.size() - 2) return 1;
  const uint64_t count = number(directory, 2);
  for (uint64_t i = 0; i < count; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > tiff.size()) break;
    if (number(entry, 2) != kOrientation) continue;
    const uint64_t value = number(entry + 8, 2);
    return number(entry + 2, 2) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Picture upright(Picture stored, int orientation) {
  if (orientation == 1) return stored;
  const bool turned = orientation >= 5;  // rows become columns
  const bool from_bottom =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  Picture picture = {stored.height, stored.width, std::vector<uint8_t>(stored.rgb.size())};
  if (turned) std::swap(picture.height, picture.width);
  uint8_t* out = picture.rgb.data();
  for (int64_t y = 0; y < picture.height; ++y) {
    for (int64_t x = 0; x < picture.width; ++x, out += 3) {
      int64_t row = turned ? x : y, column = turned ? y : x;
      if (from_bottom) row = stored.height - 1 - row;
      if (from_right) column = stored.width - 1 - column;
      std::copy_n(stored.rgb.data() + (row * stored.width + column) * 3, 3, out);
    }
  }
  return picture;
}

}  // namespace lumen::data
