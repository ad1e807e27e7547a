// Shape: the extents of a tensor, row-major, at most 8 of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace lumen {

// Extents, outermost first; a scalar has none. Cheap to copy. Extents are ≥ 0. What would give it
// more than kMaxRank throws Error(kMalformed).
class Shape {
 public:
  static constexpr int kMaxRank = 8;
  // More than any machine holds, and few enough that sizes in bytes add up in 64 bits.
  static constexpr int64_t kMaxElements = int64_t{1} << 45;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    if (dims.size() > kMaxRank) refuse_rank();
    for (int i = 0; i < rank_; ++i) dims_[i] = dims[i];
  }

  int rank() const { return rank_; }
  // Extent of axis `i`; negative counts from the end: shape[-1] is the innermost.
  int64_t operator[](int i) const { return dims_[i < 0 ? i + rank_ : i]; }
  int64_t& operator[](int i) { return dims_[i < 0 ? i + rank_ : i]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }

  // Product of all extents; 1 for a scalar.
  int64_t elements() const {
    int64_t product = 1;
    for (int64_t dim : *this) product *= dim;
    return product;
  }
  void push_back(int64_t dim) {
    if (rank_ == kMaxRank) refuse_rank();
    dims_[rank_++] = dim;
  }
  friend bool operator==(const Shape& a, const Shape& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  [[noreturn]] static void refuse_rank();

  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// Throws Error(kMalformed) naming `what` unless every extent is ≥ 0 and their product, those of 0
// taken as 1, at most Shape::kMaxElements.
void check_extents(std::string_view what, const Shape& shape);

// Element strides of a row-major contiguous tensor.
using Strides = std::array<int64_t, Shape::kMaxRank>;
Strides contiguous_strides(const Shape& shape);

// "[2, 3, 4]".
std::string to_string(const Shape& shape);

}  // namespace lumen
