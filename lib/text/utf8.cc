#include "lib/text/utf8.h"

#include "lib/base/error.h"

namespace lumen::text {

void check_normalized_size(size_t bytes) {
  constexpr size_t kMaxBytes = size_t{1} << 30;
  if (bytes > kMaxBytes) {
    fail(ErrorKind::kResource, "normalizing makes the text longer than ", human_bytes(kMaxBytes));
  }
}

}  // namespace lumen::text
