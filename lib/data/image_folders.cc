// Folders of pictures: one sub-directory per class, with further ones in it or not.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/data/documents.h"
#include "lib/data/image_file.h"
#include "lib/data/images.h"
#include "lib/data/source.h"
#include "lib/io/mapped_file.h"
#include "lib/io/sha256.h"

namespace lumen::data {
namespace {

constexpr size_t kDeepest = 8;  // sub-directories in a class

// Formats that cannot be decoded are among them: left out without a word, they would be missed by
// nobody until the network has learned from half of the data.
bool is_picture_name(const std::string& name) {
  constexpr std::string_view kExtensions[] = {".png", ".jpg",  ".jpeg", ".bmp", ".gif",  ".webp",
                                              ".tif", ".tiff", ".ppm",  ".pgm", ".heic", ".avif"};
  std::string lower = name;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::ranges::any_of(kExtensions, [&](std::string_view e) { return lower.ends_with(e); });
}

std::string canonical(const std::string& directory) {
  std::error_code error;
  return std::filesystem::canonical(directory, error).string();
}

std::vector<std::string> class_names(const std::string& directory) {
  std::vector<std::string> names;
  for (const std::string& name : list_directory(directory)) {
    if (!io::is_directory(directory + "/" + name)) continue;
    if (!is_valid_utf8(name)) {
      fail(ErrorKind::kMalformed, io::place_of(directory + "/" + name),
           ": the name of the class is not UTF-8; rename the directory");
    }
    names.push_back(name);
  }
  return names;
}

// Directories of classes for training and evaluation: those named, or their "train" and
// "val"/"test" if they have these.
struct Roots {
  std::vector<std::string> train, eval;
};

Roots find_roots(const DataOptions& options) {
  Roots roots;
  for (const std::string& path : expand_paths(options.paths)) {
    if (!io::is_directory(path)) missing_data(path, "no such directory");
    if (!io::is_directory(path + "/train")) {
      roots.train.push_back(path);
      continue;
    }
    roots.train.push_back(path + "/train");
    for (const char* name : {"/val", "/eval", "/test"}) {
      if (!io::is_directory(path + name)) continue;
      roots.eval.push_back(path + name);
      break;
    }
  }
  const auto eval = expand_paths(options.eval_paths);
  if (!eval.empty()) roots.eval = eval;
  return roots;
}

class FolderReader {
 public:
  explicit FolderReader(const DataOptions& options)
      : size_(options.image_size == 0 ? 32 : options.image_size),
        channels_(options.channels == 0 ? 3 : options.channels),
        bad_(options.on_bad_row, info_) {}

  void read(const std::vector<std::string>& roots, bool is_eval) {
    LabelledImages& images = is_eval ? found_.eval : found_.train;
    images.channels = channels_;
    images.height = images.width = size_;
    for (const std::string& root : roots) {
      SourceFile source;
      source.path = root;
      io::Sha256 hash;
      for (const std::string& name : class_names(root)) {
        const int32_t label = label_of(name, is_eval, root);
        read_class(root + "/" + name, label, images, source, hash);
      }
      source.sha256 = hash.hex();
      found_.files.push_back(std::move(source));
    }
  }

  ImageFiles finish() {
    found_.name = "image folders";
    found_.skipped = info_.skipped;
    found_.skipped_examples = std::move(info_.skipped_examples);
    return std::move(found_);
  }

 private:
  int32_t label_of(const std::string& name, bool is_eval, const std::string& root) {
    const auto known = std::find(found_.classes.begin(), found_.classes.end(), name);
    if (known != found_.classes.end()) {
      return static_cast<int32_t>(known - found_.classes.begin());
    }
    if (is_eval) {
      fail(ErrorKind::kMismatch, io::place_of(root), ": has the class ", quoted(name),
           ", which the training data do not have");
    }
    if (static_cast<int64_t>(found_.classes.size()) >= limits::kDataClasses) {
      fail(ErrorKind::kMalformed, io::place_of(root), ": more than ", limits::kDataClasses,
           " classes");
    }
    found_.classes.push_back(name);
    return static_cast<int32_t>(found_.classes.size()) - 1;
  }

  // Like torchvision's ImageFolder with what is in sub-directories of the class.
  void read_class(const std::string& directory, int32_t label, LabelledImages& images,
                  SourceFile& source, io::Sha256& hash) {
    for (const std::string& path : pictures_in(directory)) {
      read_picture(directory, path, label, images, source, hash);
    }
  }

  // Paths below `directory`, in order. A directory to which several links lead, or one that leads
  // back to where it stands, is read once; so is one that holds the class, as a link upwards does.
  static std::vector<std::string> pictures_in(const std::string& directory) {
    std::vector<std::string> found;
    std::set<std::string> seen;
    for (std::filesystem::path around = canonical(directory); seen.insert(around.string()).second;
         around = around.parent_path()) {
    }
    std::vector<std::pair<std::string, size_t>> pending = {{"", 0}};  // with their depth
    for (size_t next = 0; next < pending.size(); ++next) {
      const auto [below, depth] = pending[next];
      for (const std::string& name : list_directory(directory + "/" + below)) {
        const std::string path = below + name, place = directory + "/" + path;
        const bool is_directory = io::is_directory(place);
        if (!is_directory && is_picture_name(name)) found.push_back(path);
        if (!is_directory || depth >= kDeepest || !seen.insert(canonical(place)).second) continue;
        pending.emplace_back(path + "/", depth + 1);
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  void read_picture(const std::string& directory, const std::string& name, int32_t label,
                    LabelledImages& images, SourceFile& source, io::Sha256& hash) {
    constexpr uint64_t kMostBytes = uint64_t{8} << 30;
    const std::string path = directory + "/" + name;
    bad_.guard(source, [&] {
      const std::string content = io::read_file(path, limits::kImageBytes);
      source.bytes += content.size();
      hash.update(str(name, '\n', content.size(), '\n'));
      hash.update(content);
      with_context(io::place_of(path), [&] {
        const Picture picture = decode_picture(std::as_bytes(std::span(content)));
        const auto pixels = resize_picture(picture, size_, channels_);
        images.pixels.insert(images.pixels.end(), pixels.begin(), pixels.end());
      });
      images.labels.push_back(label);
      ++source.samples;
    });
    if (images.pixels.size() > kMostBytes) {
      fail(ErrorKind::kResource, io::place_of(directory), ": the pictures need more than ",
           human_bytes(kMostBytes), " at ", size_, "×", size_, " pixels; set a smaller image_size");
    }
  }

  int64_t size_, channels_;
  DatasetInfo info_;
  BadRows bad_;
  ImageFiles found_;
};

}  // namespace

ImageFiles read_image_folders(const DataOptions& options) {
  const Roots roots = find_roots(options);
  FolderReader reader(options);
  reader.read(roots.train, false);
  reader.read(roots.eval, true);
  ImageFiles found = reader.finish();
  const auto check_any = [](const LabelledImages& images, const std::vector<std::string>& in) {
    if (images.count() > 0) return;
    fail(ErrorKind::kMissing, io::place_of(in.front()),
         ": has no *.png or *.jpg in sub-directories, one per class");
  };
  check_any(found.train, roots.train);
  if (!roots.eval.empty() && !options.eval_fraction) check_any(found.eval, roots.eval);
  if (found.classes.size() == 1) {
    fail(ErrorKind::kMismatch, io::place_of(roots.train.front()), ": has pictures of one class, ",
         quoted(found.classes[0], 40), ": there is nothing to learn");
  }
  for (size_t label = 0; label < found.classes.size(); ++label) {
    const auto& labels = found.train.labels;
    if (std::find(labels.begin(), labels.end(), static_cast<int32_t>(label)) != labels.end()) {
      continue;
    }
    fail(ErrorKind::kMissing, io::place_of(roots.train.front()), ": the class ",
         quoted(found.classes[label]), " has no *.png or *.jpg; remove its directory, or put ",
         "pictures there");
  }
  return found;
}

}  // namespace lumen::data
