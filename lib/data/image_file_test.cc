#include "lib/data/image_file.h"

// clang-format off
#include <cstdio>  // jpeglib.h needs it before
#include <jpeglib.h>
// clang-format on
#include <png.h>

#include <cstdlib>
#include <filesystem>

#include "lib/base/testing.h"
#include "lib/data/images.h"
#include "lib/io/atomic_file.h"

namespace lumen::data {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;

// A picture whose colours change slowly from place to place.
Picture smooth_picture(int64_t height, int64_t width) {
  Picture picture{height, width, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      picture.rgb.push_back(static_cast<uint8_t>(255 * x / width));
      picture.rgb.push_back(static_cast<uint8_t>(255 * y / height));
      picture.rgb.push_back(100);
    }
  }
  return picture;
}

std::string as_png(const Picture& picture, uint32_t format = PNG_FORMAT_RGB) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<uint32_t>(picture.width);
  image.height = static_cast<uint32_t>(picture.height);
  image.format = format;
  png_alloc_size_t size = 0;
  REQUIRE(png_image_write_to_memory(&image, nullptr, &size, 0, picture.rgb.data(), 0, nullptr));
  std::string out(size, '\0');
  REQUIRE(png_image_write_to_memory(&image, out.data(), &size, 0, picture.rgb.data(), 0, nullptr));
  out.resize(size);
  return out;
}

// A grey pixel of 16 bits, of no declared gamma.
std::string as_deep_png(uint16_t grey) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  const auto append = [](png_structp writer, png_bytep data, size_t size) {
    static_cast<std::string*>(png_get_io_ptr(writer))->append(reinterpret_cast<char*>(data), size);
  };
  png_set_write_fn(png, &out, append, nullptr);
  png_set_IHDR(png, info, 1, 1, 16, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  const png_byte row[] = {static_cast<png_byte>(grey >> 8), static_cast<png_byte>(grey & 255)};
  png_write_row(png, row);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

// Of pictures with four numbers per pixel in CMYK.
std::string as_jpeg(const Picture& picture, J_COLOR_SPACE colors = JCS_RGB,
                    const std::string& exif = "") {
  const int components = colors == JCS_CMYK ? 4 : 3;
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &buffer, &size);
  jpeg.image_width = static_cast<JDIMENSION>(picture.width);
  jpeg.image_height = static_cast<JDIMENSION>(picture.height);
  jpeg.input_components = components;
  jpeg.in_color_space = colors;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 95, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  if (!exif.empty()) {
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  }
  for (int64_t y = 0; y < picture.height; ++y) {
    auto* row = const_cast<uint8_t*>(picture.rgb.data()) + y * picture.width * components;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string out(reinterpret_cast<char*>(buffer), size);
  std::free(buffer);
  return out;
}

Picture decoded(const std::string& bytes) {
  return decode_picture(std::as_bytes(std::span(bytes)));
}

TEST_CASE("PNG and JPEG files are decoded") {
  const Picture picture = smooth_picture(20, 33);
  const Picture png = decoded(as_png(picture));
  CHECK(png.height == 20);
  CHECK(png.width == 33);
  CHECK(png.rgb == picture.rgb);
  const Picture jpeg = decoded(as_jpeg(picture));
  CHECK(jpeg.height == 20);
  REQUIRE(jpeg.rgb.size() == picture.rgb.size());
  for (size_t i = 0; i < jpeg.rgb.size(); ++i) {
    REQUIRE(std::abs(int{jpeg.rgb[i]} - int{picture.rgb[i]}) < 12);
  }
  Picture grey{2, 2, {0, 85, 170, 255}};
  CHECK(decoded(as_png(grey, PNG_FORMAT_GRAY)).rgb ==
        std::vector<uint8_t>{0, 0, 0, 85, 85, 85, 170, 170, 170, 255, 255, 255});
  Picture transparent{1, 3, {200, 100, 50, 0, 200, 100, 50, 128, 7, 8, 9, 255}};
  CHECK(decoded(as_png(transparent, PNG_FORMAT_RGBA)).rgb ==
        std::vector<uint8_t>{200, 100, 50, 200, 100, 50, 7, 8, 9});
  Picture veiled{1, 2, {85, 3, 170, 200}};
  CHECK(decoded(as_png(veiled, PNG_FORMAT_GA)).rgb ==
        std::vector<uint8_t>{85, 85, 85, 170, 170, 170});
  // After the header, 33 bytes long: a chunk that says the bytes are proportional to light.
  std::string linear = as_png(picture);
  linear.insert(33, std::string("\0\0\0\4gAMA\0\1\x86\xA0\x31\xE8\x96\x5F", 16));
  CHECK(decoded(linear).rgb == picture.rgb);
  CHECK(decoded(as_deep_png(40000)).rgb == std::vector<uint8_t>{156, 156, 156});
}

TEST_CASE("JPEG files in the colours of print are decoded as Pillow does") {
  Picture print{8, 16, {}};
  for (int i = 0; i < 8 * 16; ++i) {
    const std::vector<uint8_t> inks =
        i % 16 < 8 ? std::vector<uint8_t>{255, 128, 0, 255} : std::vector<uint8_t>{255, 128, 0, 51};
    print.rgb.insert(print.rgb.end(), inks.begin(), inks.end());
  }
  const Picture light = decoded(as_jpeg(print, JCS_CMYK));
  CHECK(light.height == 8);
  CHECK(light.width == 16);
  REQUIRE(light.rgb.size() == 8 * 16 * 3);
  const int expected[2][3] = {{255, 128, 0}, {51, 26, 0}};  // value · black / 255
  for (size_t i = 0; i < light.rgb.size(); ++i) {
    CHECK(std::abs(int{light.rgb[i]} - expected[i / 3 % 16 / 8][i % 3]) <= 4);
  }
}

// EXIF data of two entries, the second the orientation.
std::string exif_of(uint16_t orientation, bool is_big_endian) {
  std::string out("Exif\0\0", 6);
  out += is_big_endian ? "MM" : "II";
  const auto add = [&](uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      const size_t byte = is_big_endian ? bytes - 1 - i : i;
      out += static_cast<char>(value >> 8 * byte & 255);
    }
  };
  add(42, 2), add(8, 4), add(2, 2);
  add(271, 2), add(2, 2), add(3, 4), add(0, 4);            // the maker, a text of three
  add(274, 2), add(3, 2), add(1, 4), add(orientation, 2);  // SHORT
  add(0, 2), add(0, 4);
  return out;
}

TEST_CASE("photographs are turned as their EXIF data say") {
  // Four fields, stored in reading order: a, b above c, d.
  constexpr int64_t kHeight = 16, kWidth = 32;
  const uint8_t fields[4][3] = {{250, 0, 0}, {0, 250, 0}, {0, 0, 250}, {250, 250, 250}};
  Picture stored{kHeight, kWidth, {}};
  for (int64_t y = 0; y < kHeight; ++y) {
    for (int64_t x = 0; x < kWidth; ++x) {
      const uint8_t* field = fields[y / (kHeight / 2) * 2 + x / (kWidth / 2)];
      stored.rgb.insert(stored.rgb.end(), field, field + 3);
    }
  }
  const auto seen = [&](const std::string& exif) {
    const Picture picture = decoded(as_jpeg(stored, JCS_RGB, exif));
    std::string letters = picture.height == kHeight ? "" : "turned ";
    for (const int64_t y : {picture.height / 4, picture.height * 3 / 4}) {
      for (const int64_t x : {picture.width / 4, picture.width * 3 / 4}) {
        const uint8_t* pixel = picture.rgb.data() + (y * picture.width + x) * 3;
        for (size_t i = 0; i < 4; ++i) {
          int distance = 0;
          for (int c = 0; c < 3; ++c) distance += std::abs(int{pixel[c]} - int{fields[i][c]});
          if (distance < 60) letters += "abcd"[i];
        }
      }
    }
    return letters;
  };
  const char* expected[] = {"abcd",        "badc",        "dcba",        "cdab",
                            "turned acbd", "turned cadb", "turned dbca", "turned bdac"};
  for (const bool is_big_endian : {false, true}) {
    for (uint16_t orientation = 1; orientation <= 8; ++orientation) {
      INFO(orientation);
      CHECK(seen(exif_of(orientation, is_big_endian)) == expected[orientation - 1]);
    }
  }
  for (const uint16_t none : {0, 9, 1000}) CHECK(seen(exif_of(none, false)) == "abcd");
  // Damaged data turn nothing, and are not read behind their end.
  const std::string whole = exif_of(6, true);
  for (size_t size = 1; size < whole.size() - 8; ++size) {
    CHECK(seen(whole.substr(0, size)) == "abcd");
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = '\xFF';
    CHECK(seen(damaged).size() >= 4);
  }
}

TEST_CASE("damaged pictures are refused wherever they are cut") {
  const Picture picture = smooth_picture(40, 40);
  const Picture print{20, 20, smooth_picture(20, 20 * 4 / 3 + 1).rgb};
  for (const std::string& whole : {as_png(picture), as_jpeg(picture), as_jpeg(print, JCS_CMYK)}) {
    for (size_t size = 0; size + 20 < whole.size(); size += 7) {
      refusal(ErrorKind::kMalformed, [&] { decoded(whole.substr(0, size)); });
      CHECK_THROWS_AS(decoded(whole.substr(0, size)), Error);
    }
    // Changed bytes may still be a picture; they must do no harm.
    for (size_t at = 0; at < whole.size(); at += 3) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x5A);
      try {
        decoded(damaged);
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::kMalformed);
      }
    }
  }
  CHECK(contains(refusal(ErrorKind::kMalformed, [] { decoded("GIF89a"); }), "neither"));
}

TEST_CASE("pictures are resized by averaging") {
  const Picture flat{3, 5, std::vector<uint8_t>(45, 77)};
  for (const int64_t size : {1, 2, 4, 9}) {
    for (const uint8_t value : resize_picture(flat, size, 3)) CHECK(value == 77);
  }
  const Picture same = smooth_picture(16, 16);
  const auto pixels = resize_picture(same, 16, 3);
  for (size_t i = 0; i < 256; ++i) {
    CHECK(pixels[i] == same.rgb[3 * i]);
    CHECK(pixels[256 + i] == same.rgb[3 * i + 1]);
  }
  // A fine checkerboard becomes its mean, not one of its colours.
  Picture board{64, 64, {}};
  for (int i = 0; i < 64 * 64; ++i) {
    const auto value = static_cast<uint8_t>((i + i / 64) % 2 * 200);
    board.rgb.insert(board.rgb.end(), {value, value, value});
  }
  for (const uint8_t value : resize_picture(board, 8, 1)) CHECK(std::abs(int{value} - 100) <= 2);
}

TEST_CASE("folders of pictures are classes") {
  const std::string root = lumen::testing::temporary_directory();
  for (const char* name : {"cats", "dogs"}) {
    std::filesystem::create_directories(root + "/" + name);
    for (int i = 0; i < 3; ++i) {
      const std::string file = root + "/" + name + "/" + str(i);
      const Picture picture = smooth_picture(10 + i, 12);
      io::write_file_atomically(file + (i == 1 ? ".JPG" : ".png"),
                                i == 1 ? as_jpeg(picture) : as_png(picture));
    }
  }
  io::write_file_atomically(root + "/cats/readme.txt", "no picture");
  DataOptions options;
  options.format = Format::kImages;
  options.paths = {root};
  options.eval_fraction = 0;
  options.image_size = 8;
  const Data data = open_data(options);
  CHECK(data.info.classes == std::vector<std::string>{"cats", "dogs"});
  CHECK(data.info.train_samples == 6);
  CHECK(data.info.feature_shape == Shape{3, 8, 8});
  CHECK(data.info.files[0].sha256 == open_data(options).info.files[0].sha256);

  // What is in a sub-directory belongs to the class; a class has pictures.
  std::filesystem::create_directories(root + "/cats/more/yet");
  io::write_file_atomically(root + "/cats/more/yet/x.png", as_png(smooth_picture(9, 9)));
  CHECK(open_data(options).info.train_samples == 7);
  std::filesystem::create_directory_symlink("..", root + "/cats/more/up");  // not once more
  std::filesystem::create_directory_symlink(".", root + "/cats/here");
  CHECK(open_data(options).info.train_samples == 7);
  // Directories that link to each other, one of them called like a picture: each once.
  const std::vector<std::string> rooms = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j.png"};
  for (const std::string& from : rooms) {
    std::filesystem::create_directories(root + "/cats/more/" + from);
    for (const std::string& to : rooms) {
      std::filesystem::create_directory_symlink("../" + to, root + "/cats/more/" + from + "/" + to);
    }
  }
  io::write_file_atomically(root + "/cats/more/j.png/x.png", as_png(smooth_picture(9, 9)));
  CHECK(open_data(options).info.train_samples == 8);
  std::filesystem::remove_all(root + "/cats/more");
  std::filesystem::remove(root + "/cats/here");
  std::filesystem::create_directories(root + "/birds");
  CHECK(contains(refusal(ErrorKind::kMissing, [&] { open_data(options); }),
                 "the class 'birds' has no *.png or *.jpg"));
  std::filesystem::remove_all(root + "/birds");
  std::filesystem::create_directories(root + "/\xFF");
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 "/\\xff: the name of the class is not UTF-8; rename the directory"));
  std::filesystem::remove_all(root + "/\xFF");

  io::write_file_atomically(root + "/dogs/9.png", "broken");
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 "dogs/9.png: is neither"));
  options.on_bad_row = OnBadRow::kSkip;
  CHECK(open_data(options).info.skipped == 1);
  CHECK(open_data(options).info.train_samples == 6);

  // A picture of another kind is not left out without a word.
  io::write_file_atomically(root + "/cats/4.WebP", "RIFF");
  CHECK(open_data(options).info.skipped == 2);
  options.on_bad_row = OnBadRow::kStop;
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 "cats/4.WebP: is neither a PNG nor a JPEG file, by its first bytes; convert it"));
  std::filesystem::remove(root + "/cats/4.WebP");

  std::filesystem::remove_all(root + "/dogs");
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { open_data(options); }),
                 "pictures of one class, 'cats': there is nothing to learn"));

  options.paths = {lumen::testing::temporary_directory()};
  CHECK(contains(refusal(ErrorKind::kMissing, [&] { open_data(options); }), "one per class"));

  // Where there are directories for evaluation, they have pictures.
  const std::string split = options.paths[0];
  for (const char* name : {"/train/a", "/train/b", "/val/a"}) {
    std::filesystem::create_directories(split + name);
  }
  for (const char* name : {"/train/a/1.png", "/train/b/1.png"}) {
    io::write_file_atomically(split + name, as_png(smooth_picture(9, 9)));
  }
  CHECK(open_data(options).eval == nullptr);  // the options say that there is to be none
  options.eval_fraction.reset();
  CHECK(contains(refusal(ErrorKind::kMissing, [&] { open_data(options); }),
                 split + "/val: has no *.png or *.jpg in sub-directories"));
  io::write_file_atomically(split + "/val/a/1.png", as_png(smooth_picture(9, 9)));
  CHECK(open_data(options).info.eval_samples == 1);
}

}  // namespace
}  // namespace lumen::data
