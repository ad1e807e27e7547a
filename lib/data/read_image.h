// One picture as a network saw the images it was trained on.
#pragma once

#include <span>
#include <string>

#include "lib/tensor/array.h"

namespace lumen::data {

// The PNG or JPEG file at `path` as float32 [channels, size, size]: scaled and made grey (1
// channel) or coloured (3) as the images of folders are, then (pixel / 255 − mean) / deviation per
// channel. `mean` and `deviation` have a number per channel. Throws Error: kMissing, kIo;
// kMalformed "PATH: …" if it is no picture, damaged or too large.
Array read_image(const std::string& path, int64_t size, std::span<const double> mean,
                 std::span<const double> deviation);

}  // namespace lumen::data
