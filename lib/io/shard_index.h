// The index of a model whose weights lie in several files: model.safetensors.index.json,
// pytorch_model.bin.index.json.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {

// "-00002-of-00010", which stands before the suffix of the second of ten files.
std::string shard_suffix(uint64_t number, uint64_t count);

// What an index says: which shard holds which tensor. Immutable.
class ShardIndex {
 public:
  // Reads the index, and looks whether its shards are there. Throws Error: kMalformed unless
  // "weight_map" maps names to plain file names, which lie beside the index, of at most
  // limits::kShards files; kMissing with the shards that are missing; as read_json.
  static ShardIndex read(const std::string& path);

  // Names of the files, each once, sorted.
  const std::vector<std::string>& shards() const { return shards_; }
  std::string path_of(const std::string& shard) const { return directory_ + shard; }

  // Compares tensors that were found with the index.
  class Check {
   public:
    // `index` must outlive it.
    explicit Check(const ShardIndex& index) : index_(index) {}

    // `shard` has a tensor `name`. Throws Error(kMalformed) if the index maps it elsewhere.
    void add(std::string_view name, const std::string& shard);
    // Throws Error(kMalformed) naming the first tensor of the index that no shard has.
    void require_all() const;

   private:
    const ShardIndex& index_;
    std::set<std::string_view> found_;
  };

 private:
  std::string directory_;  // with its "/"
  std::map<std::string, std::string, std::less<>> shard_of_;
  std::vector<std::string> shards_;
};

// Opens the shards of an index as the parts of `file`, each by add_part(file, mapped bytes), and
// checks that its tensors are the index's. Throws Error as ShardIndex, map_file and add_part.
template <typename File, typename AddPart>
void read_shards(const std::string& index_path, File& file, AddPart add_part) {
  const ShardIndex index = ShardIndex::read(index_path);
  file.path = index_path;
  ShardIndex::Check check(index);
  for (const std::string& shard : index.shards()) {
    const std::string path = index.path_of(shard);
    auto buffer = map_file(path);
    with_context(place_of(path), [&] {
      const size_t first = file.tensors.size();
      add_part(file, std::move(buffer));
      for (size_t i = first; i < file.tensors.size(); ++i) check.add(file.tensors[i].name, shard);
    });
  }
  check.require_all();
}

}  // namespace lumen::io
