#include "lib/data/images.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "lib/base/testing.h"
#include "lib/data/find_dataset.h"
#include "lib/io/atomic_file.h"

namespace lumen::data {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using lumen::testing::temporary_directory;

std::string idx_header(uint32_t magic, std::vector<uint32_t> extents) {
  std::string out;
  extents.insert(extents.begin(), magic);
  for (const uint32_t value : extents) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  }
  return out;
}

// A tiny MNIST: image i of class i % 10 has the grey value 10 i everywhere.
std::string write_mnist(int count, const std::string& part = "train") {
  const std::string directory = temporary_directory();
  std::string images = idx_header(2051, {static_cast<uint32_t>(count), 2, 3});
  std::string labels = idx_header(2049, {static_cast<uint32_t>(count)});
  for (int i = 0; i < count; ++i) {
    images += std::string(6, static_cast<char>(10 * i));
    labels += static_cast<char>(i % 10);
  }
  io::write_file_atomically(directory + "/" + part + "-images-idx3-ubyte", images);
  io::write_file_atomically(directory + "/" + part + "-labels-idx1-ubyte", labels);
  return directory;
}

DataOptions image_options(Format format, const std::string& path) {
  DataOptions options;
  options.format = format;
  if (!path.empty()) options.paths = {path};
  options.prefetch = false;
  options.shuffle = false;
  return options;
}

TEST_CASE("IDX files become normalised images") {
  DataOptions options = image_options(Format::kMnist, write_mnist(20));
  options.eval_fraction = 0;
  options.batch = 4;
  options.mean = {0.5};
  options.std = {0.25};
  DatasetInfo info;
  const auto stream = open_stream(options, Split::kTrain, {}, &info);
  CHECK(info.feature_shape == Shape{1, 2, 3});
  CHECK(info.train_samples == 20);
  CHECK(info.classes.size() == 10);
  CHECK(info.files.size() == 2);
  CHECK(info.files[0].bytes == 16 + 120);
  Batch batch;
  REQUIRE(stream->next(batch));
  CHECK(batch.fields.at("x").shape() == Shape{4, 1, 2, 3});
  const auto x = batch.fields.at("x").as<float>();
  for (size_t i = 0; i < 24; ++i) {
    CHECK(x[i] == Approx((10.0 * static_cast<double>(i / 6) / 255 - 0.5) / 0.25));
  }
  CHECK(batch.fields.at("y").as<int32_t>()[3] == 3);
}

TEST_CASE("normalisation is measured on what is trained on only") {
  DataOptions options = image_options(Format::kMnist, write_mnist(20));
  options.eval_fraction = 0.25;
  options.batch = 15;
  DatasetInfo info;
  const auto stream = open_stream(options, Split::kTrain, {}, &info);
  CHECK(info.eval_samples == 5);
  Batch batch;
  REQUIRE(stream->next(batch));
  double sum = 0, squares = 0;
  for (const float value : batch.fields.at("x").as<float>()) sum += value, squares += value * value;
  CHECK(std::abs(sum / 90) < 1e-6);
  CHECK(squares / 90 == Approx(1));
}

TEST_CASE("a channel of one level has no deviation of rounding to be divided by") {
  int measured = 0;
  for (int level = 0; level < 256; ++level) {
    const std::string directory = temporary_directory();
    io::write_file_atomically(directory + "/train-images-idx3-ubyte",
                              idx_header(2051, {5, 2, 3}) + std::string(30, char(level)));
    io::write_file_atomically(directory + "/train-labels-idx1-ubyte",
                              idx_header(2049, {5}) + std::string("\0\1\0\1\0", 5));
    measured += open_data(image_options(Format::kMnist, directory)).info.std[0] != 1;
  }
  CHECK(measured == 0);
}

TEST_CASE("broken IDX files are refused with name and reason") {
  const auto why = [](const std::string& directory, ErrorKind kind = ErrorKind::kMalformed) {
    return refusal(kind, [&] { open_data(image_options(Format::kMnist, directory)); });
  };
  const std::string directory = write_mnist(5);
  const std::string images = directory + "/train-images-idx3-ubyte";
  const std::string good = idx_header(2051, {5, 2, 3}) + std::string(30, 'x');
  const auto with = [&](const std::string& content) {
    io::write_file_atomically(images, content);
    return why(directory);
  };
  CHECK(contains(with(good.substr(0, 40)), "announces 30 bytes, there are 24"));
  CHECK(contains(with(good + "y"), "there are 31"));
  CHECK(contains(with(good.substr(0, 7)), "4 bytes needed"));
  CHECK(contains(with("hello world"), "is no IDX file"));
  CHECK(contains(with(idx_header(2051, {5, 0, 3})), "extent 1 is 0"));
  CHECK(contains(with(idx_header(2051, {0xFFFFFFFF, 16384, 16384})), "announces"));
  CHECK(contains(with(idx_header(2052, {0xFFFFFFFF, 16384, 16384, 16384})), "64 bits"));
  CHECK(contains(with(idx_header(2050, {5, 6}) + std::string(30, 'x')), "2 dimensions"));
  CHECK(contains(with(idx_header(2051, {4, 2, 3}) + std::string(24, 'x')),
                 directory + ": the training files have 4 images and 5 labels"));
  const std::string empty = temporary_directory(), none = idx_header(2051, {0, 2, 3});
  io::write_file_atomically(empty + "/train-images-idx3-ubyte", none);
  io::write_file_atomically(empty + "/train-labels-idx1-ubyte", idx_header(2049, {0}));
  CHECK(contains(why(empty, ErrorKind::kMissing), empty + ": no training images"));
  DataOptions apart = image_options(Format::kMnist, write_mnist(5));
  apart.eval_fraction.reset();
  apart.eval_paths = {empty};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(apart); }),
                 empty + ": has nothing to evaluate on"));
  const std::string turned = write_mnist(5);
  io::write_file_atomically(turned + "/t10k-images-idx3-ubyte",
                            idx_header(2051, {1, 3, 2}) + std::string(6, 'x'));
  io::write_file_atomically(turned + "/t10k-labels-idx1-ubyte", idx_header(2049, {1}) + '\1');
  CHECK(contains(why(turned),
                 turned + ": training images are of 1×2×3, those for evaluation of 1×3×2"));
  std::filesystem::remove(images);
  CHECK(contains(why(directory, ErrorKind::kMissing), "the file of images is missing"));
  io::write_file_atomically(images, good);
  const std::string more = write_mnist(5);  // labels 0 to 4
  io::write_file_atomically(more + "/t10k-images-idx3-ubyte",
                            idx_header(2051, {1, 2, 3}) + std::string(6, 'x'));
  io::write_file_atomically(more + "/t10k-labels-idx1-ubyte", idx_header(2049, {1}) + '\7');
  CHECK(contains(why(more, ErrorKind::kMismatch),
                 more + ": has the label 7 for evaluation, those for training end at 4"));
  std::filesystem::remove(directory + "/train-labels-idx1-ubyte");
  CHECK(contains(why(directory, ErrorKind::kMissing), "the file of labels is missing"));
  CHECK(contains(why(directory + "/nothing", ErrorKind::kMissing), "LUMEN_DATA"));
  CHECK(contains(why(temporary_directory(), ErrorKind::kMissing), "has no IDX files"));
  CHECK(contains(why(directory + "/*.none", ErrorKind::kMissing), "no file matches"));
}

TEST_CASE("the real MNIST is read") {
  LUMEN_SHARED_DATA(directory, "datasets/mnist");
  const Data data = open_data(image_options(Format::kMnist, directory));
  CHECK(data.info.train_samples == 60000);
  CHECK(data.info.eval_samples == 10000);
  CHECK(data.info.mean[0] == Approx(0.1307).margin(5e-5));
  CHECK(data.info.std[0] == Approx(0.3081).margin(5e-5));
  const int64_t first[] = {0, 1, 2, 3, 4};
  Batch batch;
  data.train->collate({first, 5, 5, 0, 0}, batch);
  const auto y = batch.fields.at("y").as<int32_t>();
  CHECK(std::vector<int32_t>(y.begin(), y.end()) == std::vector<int32_t>{5, 0, 4, 1, 9});
}

TEST_CASE("CIFAR-10 is read, a part of a file too") {
  LUMEN_SHARED_DATA(directory, "datasets/cifar10");
  DataOptions options = image_options(Format::kCifar10, directory);
  options.batch = 8;
  DatasetInfo info;
  const auto stream = open_stream(options, Split::kEval, {}, &info);
  CHECK(info.train_samples == 900);
  CHECK(info.eval_samples == 100);
  CHECK(info.classes[6] == "frog");
  CHECK(info.feature_shape == Shape{3, 32, 32});
  CHECK(info.mean[0] == Approx(0.491).margin(0.02));  // of the whole set
  int64_t samples = 0, padded = 0;
  for (Batch batch; stream->next(batch);) {
    samples += batch.samples;
    CHECK(batch.fields.at("x").shape() == Shape{8, 3, 32, 32});
    for (const int32_t y : batch.fields.at("y").as<int32_t>()) padded += y == kIgnored ? 1 : 0;
  }
  CHECK(samples == 100);
  CHECK(padded == 4);
}

TEST_CASE("broken CIFAR-10 files are refused") {
  const std::string path = temporary_directory() + "/data_batch_1.bin";
  const auto why = [&](std::string content) {
    io::write_file_atomically(path, content);
    return refusal(ErrorKind::kMalformed,
                   [&] { open_data(image_options(Format::kCifar10, path)); });
  };
  std::string records(2 * 3073, '\0');
  CHECK(contains(why(records + "abc"), "2 records of 3073 bytes and 3 left over"));
  records[3073] = 10;
  CHECK(contains(why(records), "record 2 (byte 3073) has the label 10"));
}

TEST_CASE("bad CIFAR-10 records are left out and counted where that is asked for") {
  const std::string path = temporary_directory() + "/data_batch_1.bin";
  std::string records(4 * 3073, '\0');
  records[3073] = 10;
  io::write_file_atomically(path, records);
  DataOptions options = image_options(Format::kCifar10, path);
  options.on_bad_row = OnBadRow::kSkip;
  options.eval_fraction = 0;
  const Data data = open_data(options);
  CHECK(data.info.train_samples == 3);
  CHECK(data.info.skipped == 1);
  REQUIRE(data.info.skipped_examples.size() == 1);
  CHECK(contains(data.info.skipped_examples[0], "data_batch_1.bin: record 2 (byte 3073) has the"));
}

TEST_CASE("augmentation moves and mirrors, differently in every epoch, the same every time") {
  const std::string path = temporary_directory() + "/data_batch_1.bin";
  std::string record(1, '\3');
  for (int c = 0; c < 3; ++c) {
    for (int row = 0; row < 32; ++row) {
      for (int column = 0; column < 32; ++column) record += static_cast<char>(8 * row + column / 4);
    }
  }
  io::write_file_atomically(path, record + record);
  DataOptions options = image_options(Format::kCifar10, path);
  options.eval_fraction = 0.5;
  options.augment = true;
  options.mean = {0, 0, 0};
  options.std = {1, 1, 1};
  const Data data = open_data(options);
  const auto image = [&](const Dataset& dataset, uint64_t epoch) {
    const int64_t first = 0;
    Batch batch;
    dataset.collate({&first, 1, 1, 7, epoch}, batch);
    const auto x = batch.fields.at("x").as<float>();
    return std::vector<float>(x.begin(), x.end());
  };
  const auto plain = image(*data.eval, 0);
  CHECK(image(*data.eval, 1) == plain);
  CHECK(image(*data.train, 3) == image(*data.train, 3));
  int mirrored = 0, moved = 0;
  constexpr int kEpochs = 200;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto x = image(*data.train, epoch);
    // The middle of every image is inside whatever the crop.
    const auto at = [&](int row, int column) {
      return std::lround(x[static_cast<size_t>(row * 32 + column)] * 255);
    };
    mirrored += at(16, 8) % 8 > at(16, 24) % 8 ? 1 : 0;
    const long shift = at(16, 16) / 8 - 16;
    CHECK(std::abs(shift) <= 4);
    moved += shift != 0 ? 1 : 0;
    for (const size_t channel : {1, 2}) {
      CHECK(std::equal(x.begin(), x.begin() + 1024,
                       x.begin() + static_cast<int64_t>(channel) * 1024));
    }
  }
  CHECK(mirrored > 70);
  CHECK(mirrored < 130);
  CHECK(moved > 150);
}

TEST_CASE("drawn digits are a function of their number") {
  const LabelledImages all = draw_digits(0, 40, 28, 1, 5);
  CHECK(draw_digits(20, 20, 28, 1, 5).pixels ==
        std::vector<uint8_t>(all.pixels.begin() + 20 * 784, all.pixels.end()));
  CHECK(draw_digits(0, 40, 28, 1, 6).pixels != all.pixels);
  for (int i = 0; i < 40; ++i) CHECK(all.labels[static_cast<size_t>(i)] == i % 10);
  const LabelledImages coloured = draw_digits(0, 4, 32, 3, 5);
  CHECK(coloured.pixels.size() == 4 * 3 * 32 * 32);
}

TEST_CASE("drawn digits are neither trivial nor noise") {
  const LabelledImages train = draw_digits(0, 3000, 28, 1, 0);
  const LabelledImages test = draw_digits(1'000'000, 1000, 28, 1, 0);
  // The class of the nearest mean image.
  std::array<std::array<double, 784>, 10> means{};
  for (size_t i = 0; i < 3000; ++i) {
    for (size_t p = 0; p < 784; ++p) means[i % 10][p] += train.pixels[i * 784 + p] / 300.0;
  }
  int right = 0;
  for (size_t i = 0; i < 1000; ++i) {
    size_t best = 0;
    double nearest = 1e30;
    for (size_t c = 0; c < 10; ++c) {
      double distance = 0;
      for (size_t p = 0; p < 784; ++p) {
        const double off = test.pixels[i * 784 + p] - means[c][p];
        distance += off * off;
      }
      if (distance < nearest) nearest = distance, best = c;
    }
    right += best == i % 10 ? 1 : 0;
  }
  CHECK(right > 500);
  CHECK(right < 900);
}

TEST_CASE("drawn digits come with an evaluation split of their own") {
  DataOptions options = image_options(Format::kDigits, "");
  options.digits_train = 200;
  options.digits_eval = 50;
  const Data data = open_data(options);
  CHECK(data.info.train_samples == 200);
  CHECK(data.info.eval_samples == 50);
  options.eval_fraction = 0.1;
  CHECK(open_data(options).info.eval_samples == 20);
  options.max_samples = 30;
  CHECK(open_data(options).info.train_samples == 30);
}

TEST_CASE("options that make no sense are refused") {
  DataOptions options = image_options(Format::kDigits, "");
  options.digits_train = 100;
  const auto why = [&] {
    return refusal(ErrorKind::kUsage, [&] { open_stream(options, Split::kTrain); });
  };
  options.batch = 0;
  CHECK(contains(why(), "batch is 0"));
  options.batch = 8;
  options.eval_fraction = 1.5;
  CHECK(contains(why(), "eval_fraction is 1.5"));
  options.eval_fraction = std::nan("");
  CHECK(contains(why(), "eval_fraction"));
  options.eval_fraction.reset();
  options.mean = {0, 0, 0};
  CHECK(contains(why(), "3 numbers, the images have 1 channel"));
  options.mean = {};
  options.std = {0};
  CHECK(contains(why(), "expected > 0"));
  options.std = {};
  options.batch = 101;
  options.last_batch = LastBatch::kDrop;
  CHECK(contains(why(), "no batch is left"));
  options.format = Format::kMnist;
  CHECK(contains(why(), "needs paths"));
}

TEST_CASE("data sets are found under LUMEN_DATA or built in") {
  const std::string root = temporary_directory();
  CHECK(find_dataset("mnist", root).format == Format::kDigits);
  CHECK(contains(find_dataset("mnist", root).notice, "mnist"));
  std::filesystem::create_directories(root + "/mnist");
  const FoundDataset found = find_dataset("mnist", root);
  CHECK(found.format == Format::kMnist);
  CHECK(found.paths == std::vector<std::string>{root + "/mnist"});
  CHECK_FALSE(found.builtin);
  CHECK(find_dataset("stories", root).separator == "\n\n");
  CHECK(find_dataset("mnist", root).separator == "");
  CHECK(contains(refusal(ErrorKind::kMissing, [&] { find_dataset("iris", root); }), "iris.csv"));
  CHECK(contains(refusal(ErrorKind::kMissing, [&] { find_dataset("mnist", root + "/none"); }),
                 "LUMEN_DATA"));
  CHECK(contains(refusal(ErrorKind::kUsage, [&] { find_dataset("mnis", root); }),
                 "did you mean 'mnist'"));
}

TEST_CASE("the threads of a pool make the batches that one thread makes") {
  DataOptions options = image_options(Format::kDigits, "");
  options.digits_train = 300;
  options.batch = 100;
  options.shuffle = true;
  options.last_batch = LastBatch::kPad;
  for (const bool augment : {false, true}) {
    options.augment = augment;
    const Data data = open_data(options);
    ThreadPool pool(3);
    const auto alone = make_stream(data, Split::kTrain, options);
    const auto together = make_stream(data, Split::kTrain, options, &pool);
    Batch a, b;
    for (int i = 0; i < 3; ++i) {
      REQUIRE(alone->next(a));
      REQUIRE(together->next(b));
      CHECK(a.indices == b.indices);
      for (const char* name : {"x", "y"}) {
        const Array &x = a.fields.at(name), &y = b.fields.at(name);
        REQUIRE(x.bytes() == y.bytes());
        CHECK(std::memcmp(x.data(), y.data(), x.bytes()) == 0);
      }
    }
  }
}

}  // namespace
}  // namespace lumen::data
