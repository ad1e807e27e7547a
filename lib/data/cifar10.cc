// CIFAR-10, binary version: records of one label byte and 3 × 32 × 32 bytes, channels first.
#include <filesystem>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/documents.h"
#include "lib/data/images.h"
#include "lib/data/source.h"
#include "lib/io/mapped_file.h"

namespace lumen::data {
namespace {

constexpr int64_t kSide = 32, kImageBytes = 3 * kSide * kSide, kRecord = 1 + kImageBytes;
constexpr const char* kClasses[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                    "dog",      "frog",       "horse", "ship", "truck"};

LabelledImages read_records(const Source& source, BadRows& bad, SourceFile& file) {
  const auto bytes = source.bytes();
  if (bytes.empty() || bytes.size() % kRecord != 0) {
    fail(ErrorKind::kMalformed, "has ", bytes.size(), " bytes: ", bytes.size() / kRecord,
         " records of ", kRecord, " bytes and ", bytes.size() % kRecord,
         " left over (truncated, or not the binary version of CIFAR-10?)");
  }
  LabelledImages images;
  images.channels = 3;
  images.height = images.width = kSide;
  images.pixels.reserve(bytes.size());
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  for (size_t at = 0; at < bytes.size(); at += kRecord) {
    bad.guard(file, [&] {
      if (data[at] >= std::size(kClasses)) {
        fail(ErrorKind::kMalformed, "record ", at / kRecord + 1, " (byte ", at, ") has the label ",
             int{data[at]}, ", expected 0 to 9 (data.on_bad_row = \"skip\" leaves it out)");
      }
      images.labels.push_back(data[at]);
      images.pixels.insert(images.pixels.end(), data + at + 1, data + at + kRecord);
    });
  }
  return images;
}

std::vector<std::string> record_files(const std::string& path) {
  if (!io::is_directory(path)) return {path};
  std::vector<std::string> files;
  for (const std::string& name : list_directory(path)) {
    if (name.ends_with(".bin") || name.ends_with(".bin.gz")) files.push_back(path + "/" + name);
  }
  if (files.empty()) missing_data(path, "has no *.bin files such as data_batch_1.bin");
  return files;
}

}  // namespace

ImageFiles read_cifar10(const DataOptions& options) {
  ImageFiles found;
  DatasetInfo skipped;
  BadRows bad(options.on_bad_row, skipped);
  found.name = "CIFAR-10";
  found.classes.assign(std::begin(kClasses), std::end(kClasses));
  for (const bool is_eval : {false, true}) {
    for (const std::string& path : expand_paths(is_eval ? options.eval_paths : options.paths)) {
      for (const std::string& file : record_files(path)) {
        SourceFile info;
        const Source source = read_source(file, limits::kDataUnpackedBytes, info);
        LabelledImages images =
            with_context(source.place(), [&] { return read_records(source, bad, info); });
        info.samples = images.count();
        found.files.push_back(std::move(info));
        const std::string name = std::filesystem::path(file).filename().string();
        const bool test = name.find("test") != std::string::npos;
        (is_eval || test ? found.eval : found.train).append(std::move(images));
      }
    }
  }
  if (found.train.count() == 0) fail(ErrorKind::kMissing, "no training images were named");
  found.skipped = skipped.skipped;
  found.skipped_examples = std::move(skipped.skipped_examples);
  return found;
}

}  // namespace lumen::data
