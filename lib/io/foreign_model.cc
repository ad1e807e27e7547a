#include "lib/io/foreign_model.h"

#include <string_view>

#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"
#include "lib/io/torch_file.h"
#include "lib/io/zip.h"

namespace lumen::io {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kSaveAgain =
    "; save the model as safetensors with the program that wrote it (in transformers: "
    "save_pretrained), or take a GGUF file of it";

struct Magic {
  size_t offset;
  std::string_view bytes, kind;
};

// Formats whose weights may be had in another file.
constexpr Magic kModels[] = {
    {0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file, as Keras and TensorFlow write them"},
    {4, "TFL3"sv, "a TensorFlow Lite model"},
    {0, "lmgg"sv, "a GGML file, from before GGUF"},
    {0, "fmgg"sv, "a GGML file, from before GGUF"},
    {0, "tjgg"sv, "a GGML file, from before GGUF"},
    {0, "\x93NUMPY"sv, "a NumPy array"},
};

constexpr Magic kArchives[] = {
    {257, "ustar"sv, "a tar archive"},
    {0, "\x1F\x8B"sv, "compressed with gzip"},
    {0,
     "\xFD"
     "7zXZ\0"sv,
     "compressed with xz"},
    {0, "BZh"sv, "compressed with bzip2"},
    {0, "\x28\xB5\x2F\xFD"sv, "compressed with zstd"},
    {0, "7z\xBC\xAF\x27\x1C"sv, "a 7z archive"},
};

bool has(std::string_view content, const Magic& magic) {
  return content.size() > magic.offset && content.substr(magic.offset).starts_with(magic.bytes);
}

std::string zip_kind(std::string_view first) {
  if (first == "metadata.json" || first == "config.json") {
    return str("a Keras model", kSaveAgain);
  }
  if (first.ends_with(".npy")) return str("an archive of NumPy arrays", kSaveAgain);
  return str("a zip archive whose first file is ", quoted(first),
             ": unpack it, and name the model in it");
}

// Protocol buffers have no magic number: a version, then one of the fields that come next.
std::string protobuf_kind(std::string_view content) {
  if (content.size() < 3 || content[0] != '\x08') return "";
  if (content[1] == '\x01' && content[2] == '\x12')
    return str("a TensorFlow SavedModel", kSaveAgain);
  const bool is_version = content[1] >= 1 && content[1] <= 32;
  if (!is_version || "\x12\x1A\x22\x28\x32\x3A\x42"sv.find(content[2]) == content.npos) return "";
  return str("an ONNX model",
             "; take the model that it was exported from, as safetensors, PyTorch checkpoint or "
             "GGUF");
}

// Whether the file is a message, such as servers send in place of what they do not have.
bool is_short_text(std::string_view content) {
  constexpr size_t kMostBytes = 1024;
  return !content.empty() && content.size() <= kMostBytes && is_valid_utf8(content) &&
         content.find('\0') == content.npos;
}

// What `content` is, after "this is "; "" if it is not known.
std::string foreign_kind(std::string_view content) {
  for (const Magic& magic : kModels) {
    if (has(content, magic)) return str(magic.kind, kSaveAgain);
  }
  for (const Magic& magic : kArchives) {
    if (has(content, magic)) return str(magic.kind, ": unpack it, and name the model in it");
  }
  return protobuf_kind(content);
}

}  // namespace

void fail_foreign_file(const std::string& path, std::span<const std::byte> content,
                       const Error& otherwise) {
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  const auto refuse = [&](ErrorKind kind, const auto&... parts) {
    fail(kind, place_of(path), ": ", parts...);
  };
  const std::string_view first = first_zip_entry(content);
  // What is wrong with a PyTorch checkpoint has been said.
  if (is_torch_file(content) && (first.empty() || first.ends_with(".pkl"))) throw otherwise;
  if (!first.empty()) refuse(ErrorKind::kUnsupported, "this is ", zip_kind(first));
  if (const std::string kind = foreign_kind(text); !kind.empty()) {
    refuse(ErrorKind::kUnsupported, "this is ", kind);
  }
  if (const std::string hint = content_hint(content); !hint.empty()) {
    refuse(is_failed_download(content) ? ErrorKind::kMalformed : ErrorKind::kUnsupported, hint);
  }
  if (path.ends_with(".json")) {
    refuse(ErrorKind::kUnsupported, "this is a JSON file: name the directory of the model");
  }
  if (is_short_text(text)) {
    refuse(ErrorKind::kMalformed, "this is no model but a text, ",
           quoted(text.substr(0, text.find('\n'))), ", perhaps the message of a failed download");
  }
  throw otherwise;
}

std::string foreign_weights(const std::string& directory) {
  constexpr std::pair<std::string_view, std::string_view> kSuffixes[] = {
      {"saved_model.pb", "a model of TensorFlow"},
      {".h5", "weights of Keras or TensorFlow"},
      {".keras", "a model of Keras"},
      {".msgpack", "weights of Flax"},
      {".onnx", "an ONNX model"},
      {".tflite", "a model of TensorFlow Lite"},
      {".mlpackage", "a model of Core ML"},
      {".mlmodel", "a model of Core ML"},
  };
  for (const std::string& name : names_in(directory)) {
    for (const auto& [suffix, kind] : kSuffixes) {
      if (name.ends_with(suffix)) return str("has ", quoted(name), ", ", kind, kSaveAgain);
    }
  }
  return "";
}

}  // namespace lumen::io
