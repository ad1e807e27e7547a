#include "lib/data/image_file.h"

// clang-format off
#include <cstdio>  // jpeglib.h needs it before
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
#include <png.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstring>
#include <string>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/exif_orientation.h"

namespace lumen::data {
namespace {

void check_size(uint64_t height, uint64_t width) {
  if (height < 1 || width < 1 || height > limits::kImageSide || width > limits::kImageSide) {
    fail(ErrorKind::kMalformed, "the picture has ", height, "×", width, " pixels, expected 1 to ",
         limits::kImageSide, " on a side");
  }
}

// Both libraries report errors by a function that must not return. They are C, so no exception may
// pass through them: the function jumps back to `read_png` or `decode_rows`, which have nothing to
// destroy.
struct PngState {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> rest;  // what is not read yet
  jmp_buf back;
  char message[128] = "";
};

[[noreturn]] void png_failed(png_structp png, png_const_charp message) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::strncpy(state->message, message, sizeof state->message - 1);
  std::longjmp(state->back, 1);
}

void png_warned(png_structp, png_const_charp) {}

void read_png_bytes(png_structp png, png_bytep out, size_t size) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (size > state->rest.size()) png_error(png, "it ends too early");
  std::memcpy(out, state->rest.data(), size);
  state->rest = state->rest.subspan(size);
}

// Reads the header, or with `rows` the picture into them, as red, green and blue. Alpha and what
// the file says of its colours (gAMA, iCCP, …) are not used, as in Pillow's convert("RGB"). False
// leaves a message.
bool read_png(PngState& state, png_bytepp rows) {
  if (setjmp(state.back) != 0) return false;
  if (rows == nullptr) {
    state.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, png_failed, png_warned);
    if (state.png != nullptr) state.info = png_create_info_struct(state.png);
    if (state.info == nullptr) return false;
    png_set_read_fn(state.png, &state, read_png_bytes);
    png_read_info(state.png, state.info);
    return true;
  }
  png_set_palette_to_rgb(state.png);
  png_set_expand_gray_1_2_4_to_8(state.png);
  png_set_strip_16(state.png);
  png_set_gray_to_rgb(state.png);
  png_set_strip_alpha(state.png);
  png_set_interlace_handling(state.png);
  png_read_update_info(state.png, state.info);
  if (png_get_rowbytes(state.png, state.info) !=
      size_t{3} * png_get_image_width(state.png, state.info)) {
    png_error(state.png, "its pixels are not red, green and blue");
  }
  png_read_image(state.png, rows);
  png_read_end(state.png, nullptr);
  return true;
}

Picture decode_png(std::span<const std::byte> bytes) {
  PngState state;
  state.rest = bytes;
  struct Free {
    PngState* state;
    ~Free() { png_destroy_read_struct(&state->png, &state->info, nullptr); }
  } const free_at_end{&state};
  if (!read_png(state, nullptr)) {
    fail(ErrorKind::kMalformed, "damaged PNG file: ", state.message);
  }
  Picture picture;
  picture.height = png_get_image_height(state.png, state.info);
  picture.width = png_get_image_width(state.png, state.info);
  check_size(static_cast<uint64_t>(picture.height), static_cast<uint64_t>(picture.width));
  const auto row_bytes = static_cast<size_t>(3 * picture.width);
  picture.rgb.resize(static_cast<size_t>(picture.height) * row_bytes);
  std::vector<png_bytep> rows;
  for (size_t at = 0; at < picture.rgb.size(); at += row_bytes) rows.push_back(&picture.rgb[at]);
  if (!read_png(state, rows.data())) {
    fail(ErrorKind::kMalformed, "damaged PNG file: ", state.message);
  }
  return picture;
}

struct JpegState {
  jpeg_decompress_struct decompress;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

JpegState* state_of(j_common_ptr info) {
  return static_cast<JpegState*>(info->client_data);
}

[[noreturn]] void jpeg_failed(j_common_ptr info) {
  info->err->format_message(info, state_of(info)->message);
  std::longjmp(state_of(info)->back, 1);
}

void jpeg_warned(j_common_ptr info, int level) {
  // Missing data are filled with grey; a training set must not have that.
  const int code = info->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) jpeg_failed(info);
}

void jpeg_progressed(j_common_ptr info) {
  constexpr int kMostScans = 500;  // a small progressive file may ask for endless work
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMostScans) {
    std::strcpy(state_of(info)->message, "too many scans");
    std::longjmp(state_of(info)->back, 1);
  }
}

bool in_inks(const jpeg_decompress_struct& jpeg) {
  return jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
}

// Reads the header, or with `rows` the picture into them: red, green and blue, or four inks. False
// leaves a message.
bool decode_rows(JpegState& state, std::span<const std::byte> bytes, uint8_t* rows) {
  jpeg_decompress_struct& jpeg = state.decompress;
  if (setjmp(state.back) != 0) return false;
  if (rows == nullptr) {
    jpeg_create_decompress(&jpeg);
    jpeg.client_data = &state;
    jpeg.progress = &state.progress;
    jpeg_save_markers(&jpeg, JPEG_APP0 + 1, 0xFFFF);  // EXIF data
    jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&jpeg, TRUE);
    return true;
  }
  jpeg.out_color_space = in_inks(jpeg) ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&jpeg);
  const size_t row_bytes = size_t{jpeg.output_width} * (in_inks(jpeg) ? 4 : 3);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = rows + jpeg.output_scanline * row_bytes;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

// The light that cyan, magenta, yellow and black leave, of each its inverse as Adobe's programs
// store it (255: no ink), and the others follow them.
void inks_to_rgb(std::vector<uint8_t>& pixels) {
  const size_t count = pixels.size() / 4;
  for (size_t i = 0; i < count; ++i) {
    const int black = pixels[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      pixels[3 * i + c] = static_cast<uint8_t>((pixels[4 * i + c] * black + 127) / 255);
    }
  }
  pixels.resize(3 * count);
}

Picture decode_jpeg(std::span<const std::byte> bytes) {
  JpegState state = {};
  state.decompress.err = jpeg_std_error(&state.errors);
  state.decompress.client_data = &state;
  state.errors.error_exit = jpeg_failed;
  state.errors.emit_message = jpeg_warned;
  state.progress.progress_monitor = jpeg_progressed;
  struct Free {
    jpeg_decompress_struct* jpeg;
    ~Free() { jpeg_destroy_decompress(jpeg); }
  } const free_at_end{&state.decompress};
  if (!decode_rows(state, bytes, nullptr)) {
    fail(ErrorKind::kMalformed, "damaged JPEG file: ", state.message);
  }
  check_size(state.decompress.image_height, state.decompress.image_width);
  int orientation = 1;  // the segments are gone after the last row
  for (const auto* segment = state.decompress.marker_list; segment; segment = segment->next) {
    if (orientation == 1) orientation = exif_orientation({segment->data, segment->data_length});
  }
  const bool inks = in_inks(state.decompress);
  Picture picture;
  picture.height = state.decompress.image_height, picture.width = state.decompress.image_width;
  picture.rgb.resize(static_cast<size_t>(picture.height * picture.width * (inks ? 4 : 3)));
  if (!decode_rows(state, bytes, picture.rgb.data())) {
    fail(ErrorKind::kMalformed, "damaged JPEG file: ", state.message);
  }
  if (inks) inks_to_rgb(picture.rgb);
  return upright(std::move(picture), orientation);
}

// For every output pixel, the first input pixel and the weights of it and its neighbours.
struct Filter {
  std::vector<int64_t> first;
  std::vector<std::vector<float>> weights;
};

Filter triangle_filter(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double radius = std::max(1.0, scale);
  Filter filter;
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + .5) * scale;
    const auto begin = std::max<int64_t>(0, std::llround(center - radius));
    const auto end = std::min<int64_t>(from, std::llround(center + radius));
    std::vector<float> weights;
    double sum = 0;
    for (int64_t j = begin; j < end; ++j) {
      const double distance = std::abs(static_cast<double>(j) + .5 - center) / radius;
      weights.push_back(static_cast<float>(std::max(0.0, 1 - distance)));
      sum += weights.back();
    }
    for (float& weight : weights) weight /= static_cast<float>(sum);
    filter.first.push_back(begin);
    filter.weights.push_back(std::move(weights));
  }
  return filter;
}

}  // namespace

Picture decode_picture(std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (head.starts_with("\x89PNG\r\n")) return decode_png(bytes);
  if (head.starts_with("\xFF\xD8\xFF")) return decode_jpeg(bytes);
  fail(ErrorKind::kMalformed, "is neither a PNG nor a JPEG file, by its first bytes; ",
       "convert it to one of them");
}

std::vector<uint8_t> resize_picture(const Picture& picture, int64_t size, int64_t channels) {
  const Filter across = triangle_filter(picture.width, size);
  const Filter down = triangle_filter(picture.height, size);
  // Rows first: [height, size, 3].
  std::vector<float> narrow(static_cast<size_t>(picture.height * size * 3));
  for (int64_t row = 0; row < picture.height; ++row) {
    const uint8_t* in = picture.rgb.data() + row * picture.width * 3;
    float* out = narrow.data() + row * size * 3;
    for (size_t x = 0; x < static_cast<size_t>(size); ++x, out += 3) {
      const uint8_t* from = in + across.first[x] * 3;
      for (const float weight : across.weights[x]) {
        for (int c = 0; c < 3; ++c) out[c] += weight * static_cast<float>(*from++);
      }
    }
  }
  std::vector<uint8_t> pixels(static_cast<size_t>(channels * size * size));
  for (int64_t y = 0; y < size; ++y) {
    const auto row = static_cast<size_t>(y);
    for (int64_t x = 0; x < size; ++x) {
      float rgb[3] = {};
      for (size_t k = 0; k < down.weights[row].size(); ++k) {
        const auto from = (down.first[row] + static_cast<int64_t>(k)) * size + x;
        for (int c = 0; c < 3; ++c) {
          rgb[c] += down.weights[row][k] * narrow[static_cast<size_t>(from * 3 + c)];
        }
      }
      if (channels == 1) rgb[0] = .299f * rgb[0] + .587f * rgb[1] + .114f * rgb[2];
      for (int64_t c = 0; c < channels; ++c) {
        pixels[static_cast<size_t>((c * size + y) * size + x)] =
            static_cast<uint8_t>(std::clamp(rgb[c] + .5f, 0.f, 255.f));
      }
    }
  }
  return pixels;
}

}  // namespace lumen::data
