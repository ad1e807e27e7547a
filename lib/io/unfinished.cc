#include "lib/io/unfinished.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace lumen::io {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<const Unfinished*> items;
};

// Never destroyed: a thread may end the process while statics are.
Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}

}  // namespace

Unfinished::Unfinished(std::string path, Kind kind) : path_(std::move(path)), kind_(kind) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.items.push_back(this);
}

Unfinished::~Unfinished() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.items.erase(std::find(all.items.begin(), all.items.end(), this));
}

void remove_unfinished() noexcept {
  try {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    std::error_code ignored;
    for (auto item = all.items.rbegin(); item != all.items.rend(); ++item) {
      if ((*item)->kind_ == Unfinished::Kind::kTree) {
        std::filesystem::remove_all((*item)->path_, ignored);
      } else {
        std::filesystem::remove((*item)->path_, ignored);
      }
    }
  } catch (...) {
    // The process ends; whoever writes there next removes what is left.
  }
}

}  // namespace lumen::io
