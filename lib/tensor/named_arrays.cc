#include "lib/tensor/named_arrays.h"

#include <vector>

#include "lib/base/error.h"

namespace lumen {
namespace {

constexpr size_t kMostNamed = 10;

// Appends "; missing: a, b and 3 more" to `message`.
void append_list(std::string& message, const std::string& title,
                 const std::vector<std::string>& items) {
  if (items.empty()) return;
  message += str(message.empty() ? "" : "; ", title, ": ");
  for (size_t i = 0; i < items.size() && i < kMostNamed; ++i) {
    message += str(i ? ", " : "", items[i]);
  }
  if (items.size() > kMostNamed) message += str(" and ", items.size() - kMostNamed, " more");
}

}  // namespace

void check_same_names(const NamedArrays& expected, const NamedArrays& given,
                      const std::string& what) {
  std::vector<std::string> missing, unexpected, misshapen;
  for (const auto& [name, array] : expected) {
    auto found = given.find(name);
    if (found == given.end()) {
      missing.push_back(quoted(name));
    } else if (!(found->second.shape() == array.shape())) {
      misshapen.push_back(str(quoted(name), " ", to_string(found->second.shape()), " instead of ",
                              to_string(array.shape())));
    }
  }
  for (const auto& [name, array] : given) {
    if (expected.count(name) == 0) unexpected.push_back(quoted(name));
  }
  std::string problems;
  append_list(problems, "missing", missing);
  append_list(problems, "unexpected", unexpected);
  append_list(problems, "of another shape", misshapen);
  if (!problems.empty()) {
    fail(ErrorKind::kMismatch, "the tensors do not fit ", what, ": ", problems);
  }
}

}  // namespace lumen
