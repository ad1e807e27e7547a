// + − * / and unary − on tensors and numbers: what ops.h calls add, sub, mul, div and neg.
#pragma once

#include "lib/ops/ops.h"

namespace lumen::graph {  // where argument-dependent lookup finds them

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return ops::add(a, b);
}
inline Tensor operator+(const Tensor& a, ops::Number b) {
  return ops::add(a, b);
}
inline Tensor operator+(ops::Number a, const Tensor& b) {
  return ops::add(b, a);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return ops::sub(a, b);
}
inline Tensor operator-(const Tensor& a, ops::Number b) {
  return ops::sub(a, b);
}
inline Tensor operator-(ops::Number a, const Tensor& b) {
  return ops::sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return ops::mul(a, b);
}
inline Tensor operator*(const Tensor& a, ops::Number b) {
  return ops::mul(a, b);
}
inline Tensor operator*(ops::Number a, const Tensor& b) {
  return ops::mul(b, a);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return ops::div(a, b);
}
inline Tensor operator/(const Tensor& a, ops::Number b) {
  return ops::div(a, b);
}
inline Tensor operator/(ops::Number a, const Tensor& b) {
  return ops::div(a, b);
}
inline Tensor operator-(const Tensor& x) {
  return ops::neg(x);
}

}  // namespace lumen::graph
