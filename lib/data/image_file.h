// Pictures in files: PNG through libpng, JPEG through libjpeg. For this room only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lumen::data {

// Red, green and blue bytes [height, width, 3].
struct Picture {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> rgb;
};

// Decodes a PNG or JPEG file, told apart by their first bytes. As Pillow's convert("RGB"), which
// torchvision uses, it does not look at transparency, gamma and colour profiles; 16-bit channels
// lose their lower half, grey ones too (Pillow: whatever is over 255 becomes white), grey becomes
// equal channels, the colours of print (CMYK) what they reflect; JPEG files are turned as their
// EXIF data say. Throws Error(kMalformed) if it is neither, damaged, truncated, or larger than
// limits::kImageSide on a side.
Picture decode_picture(std::span<const std::byte> bytes);

// `picture` as bytes [channels, size, size]: every output pixel is the average of the input under a
// triangle as wide as two output pixels, or two input pixels where those are larger (bilinear).
// One channel is the luminance of ITU-R BT.601. Height and width are scaled each for itself.
std::vector<uint8_t> resize_picture(const Picture& picture, int64_t size, int64_t channels);

}  // namespace lumen::data
