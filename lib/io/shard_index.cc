#include "lib/io/shard_index.h"

#include <algorithm>
#include <filesystem>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {
namespace {

// A shard's name must stay in the directory of its index.
void check_basename(const std::string& name) {
  if (name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
    fail(ErrorKind::kMalformed, "the shard ", quoted(name),
         " is no plain file name: shards lie beside their index");
  }
}

// All that are missing are told at once: a download that stopped early lacks more than one.
void require_shards(const std::string& index_path, const std::string& directory,
                    const std::vector<std::string>& shards) {
  constexpr size_t kShown = 5;
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    std::error_code unknown;  // map_file tells what else is wrong
    const auto status = std::filesystem::status(directory + shard, unknown);
    if (status.type() == std::filesystem::file_type::not_found) missing.push_back(quoted(shard));
  }
  if (missing.empty()) return;
  const size_t more = missing.size() - std::min(missing.size(), kShown);
  std::string list = join({missing.begin(), missing.end() - static_cast<ptrdiff_t>(more)}, ", ");
  if (more > 0) list += str(" and ", more, " more");
  fail(ErrorKind::kMissing, place_of(index_path), ": ", missing.size(), " of ", shards.size(),
       missing.size() == 1 ? " shards is" : " shards are", " missing: ", list,
       "; download what is missing into the same directory");
}

}  // namespace

std::string shard_suffix(uint64_t number, uint64_t count) {
  const auto five_digits = [](uint64_t value) {
    const std::string digits = str(value);
    return std::string(5 - std::min<size_t>(digits.size(), 5), '0') + digits;
  };
  return str("-", five_digits(number), "-of-", five_digits(count));
}

ShardIndex ShardIndex::read(const std::string& path) {
  ShardIndex index;
  index.directory_ = path.substr(0, path.find_last_of('/') + 1);
  const Json json = read_json(path);
  with_context(place_of(path), [&] {
    const Json* map = find(json, "weight_map");
    if (map == nullptr || !map->is_object()) {
      fail(ErrorKind::kMalformed, "key 'weight_map': found ", describe(map),
           ", expected an object");
    }
    for (const auto& [tensor, shard] : map->get_ref<const Json::object_t&>()) {
      if (!shard.is_string()) {
        fail(ErrorKind::kMalformed, "'weight_map': ", quoted(tensor), " is ", describe(&shard),
             ", expected a file name");
      }
      check_basename(shard.get_ref<const std::string&>());
      index.shard_of_.emplace(tensor, shard.get<std::string>());
      index.shards_.push_back(shard.get<std::string>());
    }
    std::sort(index.shards_.begin(), index.shards_.end());
    index.shards_.erase(std::unique(index.shards_.begin(), index.shards_.end()),
                        index.shards_.end());
    if (index.shards_.size() > limits::kShards) {
      fail(ErrorKind::kMalformed, index.shards_.size(), " shards; the limit is ", limits::kShards);
    }
  });
  require_shards(path, index.directory_, index.shards_);
  return index;
}

void ShardIndex::Check::add(std::string_view name, const std::string& shard) {
  const auto found = index_.shard_of_.find(name);
  if (found == index_.shard_of_.end() || found->second != shard) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(name),
         found == index_.shard_of_.end()
             ? std::string(" is not in the index")
             : str(" is mapped to ", quoted(found->second), " by the index"));
  }
  found_.insert(found->first);
}

void ShardIndex::Check::require_all() const {
  for (const auto& [tensor, shard] : index_.shard_of_) {
    if (found_.contains(tensor)) continue;
    fail(ErrorKind::kMalformed, place_of(index_.path_of(shard)), ": tensor ", quoted(tensor),
         " of the index is missing");
  }
}

}  // namespace lumen::io
