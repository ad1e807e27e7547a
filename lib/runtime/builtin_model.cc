#include "lib/runtime/builtin_model.h"

#include <sys/auxv.h>

#include <filesystem>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/hf_cache.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/version.h"

namespace lumen::runtime {

std::string builtin_model_path() {
  namespace fs = std::filesystem;
  constexpr const char* kName = "lumen-tiny.gguf";
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error);
  // Without /proc (a bare chroot): the name the program was started by.
  if (error) program = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  const fs::path here = program.parent_path();
  const fs::path places[] = {here / kName, here.parent_path() / "share/lumen" / kName,
                             fs::path(installed_data_directory()) / kName};
  std::string looked;
  for (const fs::path& place : places) {
    if (fs::exists(place, error)) return place.string();
    looked += (looked.empty() ? "" : ", ") + place.string();
  }
  fail(ErrorKind::kMissing, "the built-in model is not in ", looked, "; name a model");
}

std::string find_model(const std::string& name) {
  return name == kBuiltinModel ? builtin_model_path() : io::find_model(name);
}

std::string model_notice(const io::ModelFiles& files) {
  if (!files.gguf) return "";
  std::string notice;
  append_safe_text(notice, files.gguf->metadata.get_string("lumen.notice", ""),
                   TextSafety::kTerminal);
  constexpr size_t kLongest = 200;
  for (char& c : notice) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return notice.size() <= kLongest ? notice : quoted(notice, kLongest);
}

}  // namespace lumen::runtime
