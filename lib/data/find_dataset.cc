#include "lib/data/find_dataset.h"

#include <array>
#include <cstdlib>
#include <filesystem>

#include "lib/base/error.h"
#include "lib/data/builtin.h"
#include "lib/io/mapped_file.h"

namespace lumen::data {
namespace {

struct Known {
  std::string_view name;
  Format format;
  std::string_view place;     // under the root; "" if there is nothing to find
  std::string_view builtin;   // path of the substitute; "" if there is none
  bool draws_digits = false;  // the substitute is Format::kDigits
};

constexpr std::array<Known, 10> kKnown = {{
    {"mnist", Format::kMnist, "mnist", "", true},
    {"cifar10", Format::kCifar10, "cifar10", "", true},
    {"shakespeare", Format::kText, "text/tinyshakespeare.txt", "builtin:stories"},
    {"stories", Format::kText, "text/tinystories_sample.txt", "builtin:stories"},
    {"wikitext2", Format::kText, "text/wikitext2.valid.txt", "builtin:stories"},
    {"names", Format::kLines, "text/names.txt", "builtin:names"},
    {"iris", Format::kCsv, "csv/iris.csv", ""},
    {"penguins", Format::kCsv, "csv/penguins.csv", ""},
    {"chat", Format::kJsonl, "", "builtin:chat"},
    {"digits", Format::kDigits, "", "", true},
}};

const Known& find_known(const std::string& name) {
  for (const Known& known : kKnown) {
    if (known.name == name) return known;
  }
  const std::string near = nearest(name, dataset_names());
  fail(ErrorKind::kUsage, "no data set is called ", quoted(name),
       near.empty() ? "" : ", did you mean " + quoted(near) + "?", "; there are ",
       join(dataset_names(), ", "));
}

FoundDataset real(const Known& known, const std::string& path) {
  FoundDataset found;
  found.format = known.format;
  found.paths = {path};
  return found;
}

FoundDataset substitute(const Known& known, std::string notice) {
  FoundDataset found;
  found.format = known.draws_digits ? Format::kDigits : known.format;
  if (!known.builtin.empty()) found.paths = {std::string(known.builtin)};
  if (known.format == Format::kText) found.separator = kStorySeparator;
  found.builtin = true;
  found.notice = std::move(notice);
  return found;
}

}  // namespace

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const Known& known : kKnown) names.emplace_back(known.name);
  return names;
}

std::vector<Format> dataset_formats(const std::string& name) {
  for (const Known& known : kKnown) {
    if (known.name != name) continue;
    const bool other = known.draws_digits && known.format != Format::kDigits;
    return other ? std::vector{known.format, Format::kDigits} : std::vector{known.format};
  }
  return {};
}

FoundDataset find_dataset(const std::string& name, const std::string& root) {
  const Known& known = find_known(name);
  const std::string what = known.draws_digits ? "drawn digits" : "the built-in text";
  if (known.place.empty()) return substitute(known, "");
  std::string directory = root;
  if (directory.empty()) {
    const char* variable = std::getenv("LUMEN_DATA");
    directory = variable == nullptr ? "" : variable;
  }
  const bool has_substitute = known.draws_digits || !known.builtin.empty();
  if (directory.empty()) {
    if (!has_substitute) {
      fail(ErrorKind::kMissing, "the data set ", known.name,
           " is not built in: set LUMEN_DATA to a directory that has ", known.place);
    }
    return substitute(
        known, str("using ", what, " in place of ", known.name,
                   "; set LUMEN_DATA to a directory that has ", known.place, " for the real data"));
  }
  if (!io::is_directory(directory)) {
    fail(ErrorKind::kMissing, io::place_of(directory),
         ": no such directory; LUMEN_DATA has to name the directory of the data sets, or be unset");
  }
  const std::string path = (std::filesystem::path(directory) / known.place).string();
  std::error_code error;
  if (std::filesystem::exists(path, error)) return real(known, path);
  const std::string packed = path + ".gz";
  if (std::filesystem::exists(packed, error)) return real(known, packed);
  if (!has_substitute) {
    fail(ErrorKind::kMissing, io::place_of(path),
         ": no such file; LUMEN_DATA has to name a "
         "directory that has ",
         known.place);
  }
  return substitute(known, str("using ", what, " in place of ", known.name, ", for there is no ",
                               io::place_of(path)));
}

}  // namespace lumen::data
