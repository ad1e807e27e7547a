// Convolutions of queries, keys and values that are a tensor each (OLMo Hybrid).
#pragma once

#include "lib/tensor/named_arrays.h"

namespace lumen::io {

// transformers keeps the channels of all three in one tensor and writes them as three parts of
// equal size; gives each, "….q_conv1d.weight" and so on, as many as ….q_proj.weight has rows.
// Leaves what cannot be parted so as it is.
void part_convolutions(NamedArrays& tensors);

}  // namespace lumen::io
