// IDX files: two zero bytes, the type of element (8: unsigned byte), the number of dimensions, the
// extents as big-endian 32-bit numbers, the elements.
#include <algorithm>
#include <filesystem>

#include "lib/base/checked.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/images.h"
#include "lib/data/source.h"
#include "lib/io/byte_reader.h"
#include "lib/io/mapped_file.h"

namespace lumen::data {
namespace {

struct Idx {
  std::vector<int64_t> extents;
  std::span<const std::byte> elements;
};

Idx parse_idx(std::span<const std::byte> bytes) {
  io::ByteReader reader(bytes);
  const uint32_t magic = __builtin_bswap32(reader.read<uint32_t>());
  if (magic >> 16 != 0 || (magic & 0xFF) == 0 || (magic & 0xFF) > 4) {
    fail(ErrorKind::kMalformed, "is no IDX file: it begins with the number ", magic,
         ", expected 2049 (labels) or 2051 (images)");
  }
  if (magic >> 8 != 8) {
    fail(ErrorKind::kUnsupported, "has elements of type ", magic >> 8,
         ", only 8 (unsigned byte) is read");
  }
  Idx idx;
  Checked total = 1;
  for (uint32_t i = 0; i < (magic & 0xFF); ++i) {
    const uint32_t extent = __builtin_bswap32(reader.read<uint32_t>());
    if (i > 0 && (extent == 0 || extent > limits::kImageSide)) {
      fail(ErrorKind::kMalformed, "extent ", i, " is ", extent, ", expected 1 to ",
           limits::kImageSide);
    }
    idx.extents.push_back(extent);
    total = total * extent;
  }
  if (total.value() != reader.remaining()) {
    fail(ErrorKind::kMalformed, "the header announces ", total.value(), " bytes, there are ",
         reader.remaining(), " (truncated or corrupt file?)");
  }
  idx.elements = reader.bytes(total.value());
  return idx;
}

std::string size_of(const LabelledImages& images) {
  return str(images.channels, "×", images.height, "×", images.width);
}

// Adds the images or labels of one file.
void read_idx(const std::string& path, LabelledImages& images, ImageFiles& found) {
  SourceFile info;
  const Source source = read_source(path, limits::kDataUnpackedBytes, info);
  with_context(source.place(), [&] {
    const Idx idx = parse_idx(source.bytes());
    const auto* data = reinterpret_cast<const uint8_t*>(idx.elements.data());
    if (idx.extents.size() == 1) {
      images.labels.insert(images.labels.end(), data, data + idx.elements.size());
    } else if (idx.extents.size() == 2) {
      fail(ErrorKind::kMalformed, "has 2 dimensions, expected 1 (labels) or 3 (images)");
    } else {
      const size_t rank = idx.extents.size();
      const int64_t channels = rank == 4 ? idx.extents[1] : 1;
      const int64_t height = idx.extents[rank - 2], width = idx.extents[rank - 1];
      if (!images.pixels.empty() &&
          (channels != images.channels || height != images.height || width != images.width)) {
        fail(ErrorKind::kMalformed, "has images of ", channels, "×", height, "×", width,
             ", the file before ", size_of(images));
      }
      images.channels = channels, images.height = height, images.width = width;
      images.pixels.insert(images.pixels.end(), data, data + idx.elements.size());
      info.samples = idx.extents[0];
    }
  });
  found.files.push_back(std::move(info));
}

void check_pairs(const LabelledImages& images, std::string_view part) {
  const auto pixels = static_cast<int64_t>(images.pixels.size());
  const int64_t count = pixels == 0 ? 0 : pixels / images.pixels_per_image();
  if (count != images.count() && (count == 0 || images.count() == 0)) {
    fail(ErrorKind::kMissing, "the ", part, " files have ", count, " images and ", images.count(),
         " labels: the file of ", count == 0 ? "images" : "labels", " is missing beside the other");
  }
  if (count != images.count()) {
    fail(ErrorKind::kMalformed, "the ", part, " files have ", count, " images and ", images.count(),
         " labels: they do not belong together");
  }
}

bool contains(const std::string& path, std::string_view part) {
  return std::filesystem::path(path).filename().string().find(part) != std::string::npos;
}

// The IDX files of a directory; each of the official names with or without .gz.
std::vector<std::string> idx_files(const std::string& path) {
  if (!io::is_directory(path)) return {path};
  std::vector<std::string> files;
  for (const std::string& name : list_directory(path)) {
    if (name.find("idx") == std::string::npos || name.find("ubyte") == std::string::npos) continue;
    const bool packed_twin =
        name.ends_with(".gz") && !files.empty() && files.back() + ".gz" == path + "/" + name;
    if (!packed_twin) files.push_back(path + "/" + name);
  }
  if (files.empty()) missing_data(path, "has no IDX files such as train-images-idx3-ubyte.gz");
  return files;
}

}  // namespace

ImageFiles read_mnist(const DataOptions& options) {
  ImageFiles found;
  found.name = "IDX";
  for (const bool is_eval : {false, true}) {
    for (const std::string& path : expand_paths(is_eval ? options.eval_paths : options.paths)) {
      for (const std::string& file : idx_files(path)) {
        const bool test = contains(file, "t10k") || contains(file, "test");
        read_idx(file, is_eval || test ? found.eval : found.train, found);
      }
    }
  }
  const std::string place = io::place_of(options.paths.front());
  with_context(place, [&] { check_pairs(found.train, "training"); });
  const auto& eval_paths = options.eval_paths;
  with_context(eval_paths.empty() ? place : io::place_of(eval_paths.front()),
               [&] { check_pairs(found.eval, "evaluation"); });
  if (found.train.count() == 0) {
    fail(ErrorKind::kMissing, place,
         ": no training images: name train-images-idx3-ubyte and "
         "train-labels-idx1-ubyte, or their directory");
  }
  const LabelledImages &train = found.train, &eval = found.eval;
  if (eval.count() > 0 && size_of(eval) != size_of(train)) {
    fail(ErrorKind::kMalformed, place, ": training images are of ", size_of(train),
         ", those for evaluation of ", size_of(eval));
  }
  const int32_t largest = *std::max_element(train.labels.begin(), train.labels.end());
  for (const int32_t label : eval.labels) {
    if (label <= largest) continue;
    fail(ErrorKind::kMismatch, eval_paths.empty() ? place : io::place_of(eval_paths.front()),
         ": has the label ", label, " for evaluation, those for training end at ", largest);
  }
  for (int32_t label = 0; label <= largest; ++label) found.classes.push_back(str(label));
  return found;
}

}  // namespace lumen::data
