// Which way up a picture is, as cameras write it into EXIF data. For this room only.
#pragma once

#include <cstdint>
#include <span>

#include "lib/data/image_file.h"

namespace lumen::data {

// The orientation (tag 274 of the first directory) in the content of a JPEG file's APP1 segment,
// 1 to 8. 1, upright, if it is no EXIF data, says none, or is damaged: pictures are shown all the
// same.
int exif_orientation(std::span<const uint8_t> segment);

// The picture as it is to be seen: `orientation` tells where the first row and column of `stored`
// belong (1: top and left, 3: bottom and right, 6: right and top, 8: left and bottom, and mirrored
// 2: top and right, 4: bottom and left, 5: left and top, 7: right and bottom).
Picture upright(Picture stored, int orientation);

}  // namespace lumen::data
