#include "lib/nn/dropout.h"

#include "lib/base/error.h"

namespace lumen::nn {

Dropout::Dropout(double p) : p_(p) {
  if (!(p >= 0 && p <= 1)) fail(ErrorKind::kMalformed, "dropout is ", p, ", expected 0 to 1");
}

Tensor Dropout::forward(const Tensor& x) const {
  if (!training() || p_ == 0) return x;
  RandomScope& random = RandomScope::current("dropout");
  return ops::dropout(x, p_, random.key(), random.next_stream());
}

}  // namespace lumen::nn
