#include "lib/kernels/convolution/winograd_tiles.h"

#include "lib/base/prefetch.h"

namespace lumen::kernels::winograd_tiles {
namespace {

// The pixels that lie in the image: window rows [begin, end) and so on.
struct Inside {
  Inside(int64_t start, int64_t size, int64_t extent)
      : begin(std::clamp<int64_t>(-start, 0, size)),
        end(std::clamp<int64_t>(extent - start, begin, size)) {}
  int64_t begin, end;
};

// Fetches a row of some channels: processors do not foresee so many short ones.
void fetch_row(const Images& images, const float* row, int64_t count) {
  for (int64_t c = 0; c < count; ++c, row += images.height * images.width) {
    prefetch(row, images.width * static_cast<int64_t>(sizeof(float)));
  }
}

}  // namespace

void load_window(const Images& images, const float* x, int64_t channel, int64_t count,
                 const Rectangle& at, float* window) {
  const Inside rows(at.top, at.height, images.height), columns(at.left, at.width, images.width);
  const float* plane = x + images.plane(at.sample, channel);
  for (int64_t r = 0; r < at.height; ++r) {
    float* row = window + r * at.width * kChannels;
    if (r < rows.begin || r >= rows.end) {
      std::fill_n(row, at.width * kChannels, 0.0f);
      continue;
    }
    std::fill_n(row, columns.begin * kChannels, 0.0f);
    if (r + 1 < rows.end) fetch_row(images, plane + (at.top + r + 1) * images.width, count);
    pack_strip({plane + (at.top + r) * images.width + at.left + columns.begin,
                images.height * images.width, 1},
               count, kChannels, columns.end - columns.begin, kChannels,
               row + columns.begin * kChannels);
    std::fill_n(row + columns.end * kChannels, (at.width - columns.end) * kChannels, 0.0f);
  }
}

void store_window(const Images& images, float* y, int64_t channel, int64_t count,
                  const Rectangle& at, const float* window) {
  const Inside rows(at.top, at.height, images.height), columns(at.left, at.width, images.width);
  float* plane = y + images.plane(at.sample, channel) + at.left;
  const int64_t width = columns.end - columns.begin;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    pack_strip({window + r * at.width * kChannels, kChannels, 1}, width, width, count,
               images.height * images.width, plane + (at.top + r) * images.width);
  }
}

void round_positions(const float* x, int64_t row_stride, int64_t col_stride, int64_t rows,
                     int64_t depth, PanelOrder order, uint16_t* to, int64_t pitch) {
  for (int64_t p = 0; p < kPositions; ++p, x += kUnrounded, to += pitch) {
    pack_bf16_panel({x, row_stride, col_stride}, rows, depth, order, {to, nullptr});
  }
}

}  // namespace lumen::kernels::winograd_tiles
