#include "lib/io/foreign_model.h"

#include <filesystem>
#include <fstream>

#include "lib/base/testing.h"
#include "lib/io/model_files.h"
#include "lib/io/test_files.h"

namespace lumen::io {
namespace {

using lumen::testing::contains;

TEST_CASE("a file that is no model says what it is and what to do") {
  const std::string directory = testing::temporary_directory();
  std::string tar(512, '\0');
  tar.replace(0, 10, "model/a.bin");
  tar.replace(257, 5, "ustar");
  const struct {
    std::string content;
    ErrorKind kind;
    const char* expected;
  } cases[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n", ErrorKind::kMalformed,
       "git lfs pull"},
      {"\n <!DOCTYPE html>", ErrorKind::kMalformed, "an HTML page, probably a failed download"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", ErrorKind::kMalformed,
       "this is XML, perhaps the message of a failed download"},
      {"Entry not found", ErrorKind::kMalformed,
       "no model but a text, 'Entry not found', perhaps the message of a failed download"},
      {"PK\x03\x04zip", ErrorKind::kMalformed, "zip"},
      {zip_file({{"metadata.json", "{}"}, {"config.json", "{}"}}), ErrorKind::kUnsupported,
       "a Keras model; save the model as safetensors"},
      {zip_file({{"w/a.npy", "x"}}), ErrorKind::kUnsupported, "an archive of NumPy arrays"},
      {zip_file({{"m/config.json", "{}"}}), ErrorKind::kUnsupported,
       "a zip archive whose first file is 'm/config.json': unpack it"},
      {tar, ErrorKind::kUnsupported, "a tar archive: unpack it, and name the model in it"},
      {"\x1F\x8B\x08 and more", ErrorKind::kUnsupported, "compressed with gzip"},
      {"\x80\x02}q", ErrorKind::kUnsupported, "pickle"},
      {std::string("\x10\0\0\0\0\0\0\0{}", 10), ErrorKind::kUnsupported, "safetensors"},
      {"\x08\x07\x12\x07pytorch", ErrorKind::kUnsupported, "an ONNX model; take the model"},
      {"\x08\x01\x12\x07", ErrorKind::kUnsupported, "a TensorFlow SavedModel"},
      {"\x89HDF\r\n\x1A\n....", ErrorKind::kUnsupported, "an HDF5 file, as Keras"},
      {std::string("\x1C\0\0\0TFL3....", 12), ErrorKind::kUnsupported, "TensorFlow Lite"},
      {"tjgg\x03...", ErrorKind::kUnsupported, "a GGML file, from before GGUF"},
      {std::string(100, '\xF0'), ErrorKind::kMalformed, "not a model file"},
      {"\xF0", ErrorKind::kMalformed, "bytes needed"},
      {"", ErrorKind::kMalformed, "empty"},
  };
  for (const auto& [content, kind, expected] : cases) {
    const std::string path = directory + "/model.bin";
    std::ofstream(path, std::ios::binary) << content;
    const std::string message = testing::refusal(kind, [&] { open_model(path); });
    CAPTURE(expected, message);
    CHECK(message.starts_with(path + ": "));
    CHECK(contains(message, expected));
  }
  std::ofstream(directory + "/config.json") << "{\"model_type\": \"llama\"}";
  CHECK(contains(
      testing::refusal(ErrorKind::kUnsupported, [&] { open_model(directory + "/config.json"); }),
      "name the directory of the model"));
}

TEST_CASE("a directory of another program's model says so, with and without a config.json") {
  const std::string directory = testing::temporary_directory();
  const auto refused = [&](ErrorKind kind) {
    return testing::refusal(kind, [&] { open_model(directory); });
  };
  std::ofstream(directory + "/model.safetensors") << "x";
  CHECK(contains(refused(ErrorKind::kMissing), "has weights ('model.safetensors') but no config"));
  std::filesystem::remove(directory + "/model.safetensors");
  std::ofstream(directory + "/tf_model.h5") << "x";
  const char* expected = "has 'tf_model.h5', weights of Keras or TensorFlow; save the model as";
  CHECK(contains(refused(ErrorKind::kUnsupported), expected));
  std::ofstream(directory + "/config.json") << "{\"model_type\": \"llama\"}";
  CHECK(contains(refused(ErrorKind::kUnsupported), expected));
}

}  // namespace
}  // namespace lumen::io
