#include "lib/io/head_norms.h"

#include <algorithm>
#include <map>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/strings.h"

namespace lumen::io {
namespace {

constexpr std::string_view kOfHead = "_layernorm.norms.", kOfAll = "_layernorm.",
                           kWeight = "weight";

// The number of the head whose norm `name` is of; none of other tensors. Sets `joined` to the name
// of the tensor of all.
bool is_of_head(std::string_view name, int64_t& head, std::string& joined) {
  const size_t at = name.find(kOfHead);
  if (at == name.npos) return false;
  const std::string_view rest = name.substr(at + kOfHead.size());
  const std::string_view number = rest.substr(0, rest.find('.'));
  if (!parse_number(number, head) || rest.substr(number.size()) != str(".", kWeight)) return false;
  joined = str(name.substr(0, at), kOfAll, kWeight);
  return true;
}

}  // namespace

std::string head_norm_name(std::string_view name, const Array& array, int64_t head) {
  const bool is_any =
      name.ends_with(".q_layernorm.weight") || name.ends_with(".k_layernorm.weight");
  if (!is_any || array.shape().rank() != 2) return "";
  const std::string_view place = name.substr(0, name.size() - kOfAll.size() - kWeight.size());
  return str(place, kOfHead, head, ".", kWeight);
}

void join_head_norms(NamedArrays& tensors) {
  std::map<std::string, std::map<int64_t, Array>> found;
  std::erase_if(tensors, [&](const auto& tensor) {
    int64_t head = 0;
    std::string joined;
    if (!is_of_head(tensor.first, head, joined)) return false;
    found[joined][head] = tensor.second;
    return true;
  });
  for (const auto& [name, heads] : found) {
    const Array& first = heads.begin()->second;
    const auto count = static_cast<int64_t>(heads.size());
    const bool is_alike = std::ranges::all_of(heads, [&](const auto& head) {
      return head.second.shape() == first.shape() && head.second.dtype() == first.dtype();
    });
    if (heads.begin()->first != 0 || heads.rbegin()->first != count - 1 || !is_alike ||
        first.shape().rank() != 1) {
      fail(ErrorKind::kMalformed, "norms of heads of ", quoted(name), ": found ", count,
           " up to number ", heads.rbegin()->first,
           ", expected one for each head, all of one length and type");
    }
    Array all = Array::zeros(first.dtype(), {count, first.shape()[0]});
    std::byte* to = all.mutable_data();
    for (const auto& [head, array] : heads) {
      to = std::copy_n(array.data(), array.bytes(), to);
    }
    tensors[name] = std::move(all);
  }
}

void split_head_norms(NamedArrays& tensors) {
  NamedArrays parts;
  std::erase_if(tensors, [&](const auto& tensor) {
    const Array& array = tensor.second;
    if (head_norm_name(tensor.first, array, 0).empty()) return false;
    for (int64_t head = 0; head < array.shape()[0]; ++head) {
      parts[head_norm_name(tensor.first, array, head)] = array.part(head);
    }
    return true;
  });
  tensors.merge(parts);
}

}  // namespace lumen::io
