// How the tensors of two models differ: lumen-convert --diff.
#pragma once

#include <string>
#include <vector>

#include "lib/base/pool.h"
#include "lib/runtime/convert.h"
#include "lib/tensor/array.h"

namespace lumen::runtime {

// One tensor of both, under its name in a Hugging Face directory.
struct TensorDifference {
  std::string name;
  Shape shape, other_shape;
  DType dtype = DType::kF32, other_dtype = DType::kF32;  // as they are stored
  // Of the numbers, where the shapes are the same: max |aᵢ − bᵢ|, √(Σ (aᵢ − bᵢ)² / n), and
  // a·b / (|a| |b|), which is 1 for two tensors of zeros and 0 where one is.
  double largest = 0, rms = 0, cosine = 1;
};

// Compares two float32 arrays of one shape; the same for any number of threads.
void compare_numbers(const Array& a, const Array& b, ThreadPool& pool, TensorDifference& result);

// Prints a row for each tensor of options.model and options.output, brought into the form of a
// Hugging Face directory, and those that only one has. Returns 0, or 128 + N after signal N. Throws
// Error: kCheckFailed, after that, if one has tensors that the other lacks or of another shape; as
// open_language_model and checked_parameters.
int diff(const ConvertOptions& options);

}  // namespace lumen::runtime
