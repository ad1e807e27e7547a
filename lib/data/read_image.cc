#include "lib/data/read_image.h"

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/image_file.h"
#include "lib/data/images.h"
#include "lib/io/mapped_file.h"

namespace lumen::data {

Array read_image(const std::string& path, int64_t size, std::span<const double> mean,
                 std::span<const double> deviation) {
  const std::string content = io::read_file(path, limits::kImageBytes);
  const auto channels = static_cast<int64_t>(mean.size());
  const std::vector<uint8_t> pixels = with_context(io::place_of(path), [&] {
    return resize_picture(decode_picture(std::as_bytes(std::span(content))), size, channels);
  });
  Array image = Array::zeros(DType::kF32, {channels, size, size});
  float* out = image.as_mutable<float>().data();
  const uint8_t* pixel = pixels.data();
  for (size_t c = 0; c < mean.size(); ++c) {
    const Levels levels = levels_of(mean[c], deviation[c]);
    for (int64_t i = 0; i < size * size; ++i) *out++ = levels[*pixel++];
  }
  return image;
}

}  // namespace lumen::data
