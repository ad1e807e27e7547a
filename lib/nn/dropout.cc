#include "lib/nn/dropout.h"

#include "lib/base/error.h"

namespace lumen::nn {

Dropout::Dropout(double p) : p_(p) {
  if (!(p >= 0 && p <= 1)) fail(ErrorKind::kMalformed, "dropout is ", p, ", expected 0 to 1");
}

}  // namespace lumen::nn
