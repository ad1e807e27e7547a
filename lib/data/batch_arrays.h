// Arrays of a batch, reused from step to step. For this room only.
#pragma once

#include <span>
#include <string>

#include "lib/data/batch.h"

namespace lumen::data {

// The elements of field `name` with this shape, for writing: the array that is there if it fits.
template <typename T>
std::span<T> writable(Batch& batch, const std::string& name, const Shape& shape) {
  Array& array = batch.fields[name];
  if (array.empty() || array.dtype() != DTypeOf<T>::value || !(array.shape() == shape)) {
    array = Array::zeros(DTypeOf<T>::value, shape);
  }
  return array.as_mutable<T>();
}

}  // namespace lumen::data
