// Recurrences along one axis: running sums, running products, products and their gradient.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "lib/base/round_up.h"
#include "lib/kernels/scan_rows.h"
#include "lib/kernels/typed.h"
#include "lib/kernels/typed_rows.h"

namespace lumen::kernels {
namespace {

template <typename T>
T multiply_add(T a, T x, T b) {
  if constexpr (std::is_same_v<T, int64_t>) return wrap_add(wrap_mul(a, x), b);
  return a * x + b;
}

int64_t grain_of(int64_t elements) {
  return std::max<int64_t>(1, kTypedGrain / std::max<int64_t>(1, elements));
}

// A scan along `axis`, whose lines are numbered row-major over the other axes. Lines advance side
// by side, as each is a chain of dependent additions.
template <typename T>
class Scan {
 public:
  // a is not read of kSum, b of kProduct.
  Scan(Recurrence kind, bool reverse, const TypedOperand& a, const TypedOperand& b,
       const Shape& shape, int axis, DType to, std::byte* y)
      : kind_(kind),
        reverse_(reverse),
        a_(a),
        b_(b),
        y_{y, to, contiguous_strides(shape)},
        shape_(shape),
        axis_(axis),
        n_(shape[axis]) {
    const bool has_a = kind != Recurrence::kSum, has_b = kind != Recurrence::kProduct;
    is_float32_ = to == DType::kF32 && (!has_a || a.dtype == DType::kF32) &&
                  (!has_b || b.dtype == DType::kF32);
    const DType own = std::is_same_v<T, double> ? DType::kF64 : DType::kI64;
    is_own_ = b.dtype == own && to == own && reinterpret_cast<uintptr_t>(b.data) % alignof(T) == 0;
    const int last = shape.rank() - 1;
    is_dense_ = (!has_a || step(a, last) == 1) && (!has_b || step(b, last) == 1);
  }

  void run(ThreadPool& pool) {
    const int64_t lines = n_ > 0 ? shape_.elements() / n_ : 0;
    if (lines == 0) return;
    const int last = shape_.rank() - 1;
    const bool across = axis_ < last;  // neighbouring lines lie beside each other
    const int64_t row = across ? shape_[last] : lines, share = divide_up(lines, pool.threads());
    const int64_t width = across ? kTypedStep : std::min<int64_t>(share, kScanLines);
    const int64_t per_row = divide_up(row, width);
    pool.parallel_for(lines / row * per_row, grain_of(n_ * std::min(row, width)),
                      [&](int64_t begin, int64_t end, int) {
                        for (int64_t i = begin; i < end; ++i) {
                          const int64_t first = i % per_row * width;
                          const int64_t count = std::min(width, row - first);
                          if (across) {
                            scan_across(i / per_row * row + first, count);
                          } else {
                            scan_along(first, count);
                          }
                        }
                      });
  }

 private:
  static constexpr int64_t kPart = 64;

  int64_t step(const TypedOperand& x, int axis) const {
    return x.strides[static_cast<size_t>(axis)];
  }
  const std::byte* at(const TypedOperand& x, int64_t line, int64_t i) const {
    return x.data + (offset_of(shape_, x.strides, axis_, line) + i * step(x, axis_)) *
                        info(x.dtype).block_bytes;
  }
  std::byte* result_at(int64_t line, int64_t i) const {
    return const_cast<std::byte*>(at(y_, line, i));
  }
  // Where the factor of step i stands.
  int64_t factor_of(int64_t i) const {
    return reverse_ && kind_ == Recurrence::kLinear ? i + 1 : i;
  }

  // `count` ≤ kTypedStep neighbours along the last axis, one element of each after the other.
  void scan_across(int64_t line, int64_t count) const {
    const int last = shape_.rank() - 1;
    const bool is_product = kind_ == Recurrence::kProduct;
    T factors[kTypedStep], terms[kTypedStep] = {}, carry[kTypedStep];
    std::fill_n(factors, count, T{1});
    for (int64_t k = 0; k < n_; ++k) {
      const bool first = k == 0;
      const int64_t i = reverse_ ? n_ - 1 - k : k;
      if constexpr (std::is_same_v<T, double>) {
        if (is_float32_ && is_dense_) {
          const auto row = [&](const TypedOperand& x, int64_t from) {
            return reinterpret_cast<const float*>(at(x, line, from));
          };
          const bool has_factor = is_product || (kind_ == Recurrence::kLinear && !first);
          scan_row(kind_, first, has_factor ? row(a_, factor_of(i)) : nullptr,
                   is_product ? nullptr : row(b_, i), count, carry,
                   reinterpret_cast<float*>(result_at(line, i)));
          continue;
        }
      }
      if (kind_ != Recurrence::kSum && (!first || is_product)) {
        load_typed(a_.dtype, at(a_, line, factor_of(i)), step(a_, last), count, factors);
      }
      if (!is_product) load_typed(b_.dtype, at(b_, line, i), step(b_, last), count, terms);
      const T* const start = is_product ? factors : terms;
      for (int64_t l = 0; l < count; ++l) {
        carry[l] = first ? start[l] : multiply_add(factors[l], carry[l], terms[l]);
      }
      store_typed(y_.dtype, carry, count, result_at(line, i));
    }
  }

  // `count` ≤ kScanLines lines along the last axis.
  void scan_along(int64_t line, int64_t count) const {
    if constexpr (std::is_same_v<T, double>) {
      if (count == kScanLines && is_float32_ && is_dense_ && has_scan_lines()) {
        const float *a[kScanLines], *b[kScanLines];
        float* y[kScanLines];
        for (int64_t l = 0; l < kScanLines; ++l) {
          a[l] = kind_ == Recurrence::kSum ? nullptr
                                           : reinterpret_cast<const float*>(at(a_, line + l, 0));
          b[l] = kind_ == Recurrence::kProduct
                     ? nullptr
                     : reinterpret_cast<const float*>(at(b_, line + l, 0));
          y[l] = reinterpret_cast<float*>(result_at(line + l, 0));
        }
        return scan_lines(kind_, reverse_, a, b, n_, y);
      }
    }
    if (kind_ == Recurrence::kSum && is_dense_ && is_own_) return add_up(line, count);
    scan_parts(line, count);
  }

  // Sums of numbers that are T already; additions of integers take a cycle each.
  void add_up(int64_t line, int64_t count) const {
    constexpr int64_t kBeside = std::is_same_v<T, double> ? 4 : 1;
    int64_t l = 0;
    for (; l + kBeside <= count; l += kBeside) add_up_lines<kBeside>(line + l);
    for (; l < count; ++l) add_up_lines<1>(line + l);
  }

  template <int64_t kBeside>
  void add_up_lines(int64_t line) const {
    const T* x[kBeside];
    T *y[kBeside], total[kBeside];
    const int64_t start = reverse_ ? n_ - 1 : 0;
    for (int64_t l = 0; l < kBeside; ++l) {
      x[l] = reinterpret_cast<const T*>(at(b_, line + l, 0));
      y[l] = reinterpret_cast<T*>(result_at(line + l, 0));
      y[l][start] = total[l] = x[l][start];
    }
    for (int64_t k = 1; k < n_; ++k) {
      const int64_t i = reverse_ ? n_ - 1 - k : k;
      for (int64_t l = 0; l < kBeside; ++l) {
        y[l][i] = total[l] = multiply_add(T{1}, total[l], x[l][i]);
      }
    }
  }

  // A part of each line after the other.
  void scan_parts(int64_t line, int64_t count) const {
    T factors[kScanLines][kPart] = {}, terms[kScanLines][kPart] = {}, carry[kScanLines] = {};
    const int64_t parts = divide_up(n_, kPart);
    const bool is_product = kind_ == Recurrence::kProduct;
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t begin = (reverse_ ? parts - 1 - p : p) * kPart;
      const int64_t length = std::min(kPart, n_ - begin);
      const auto load = [&](const TypedOperand& x, int64_t l, int64_t from, int64_t n, T* to) {
        load_typed(x.dtype, at(x, line + l, from), step(x, axis_), n, to);
      };
      const int64_t start = reverse_ ? length - 1 : 0;
      for (int64_t l = 0; l < count; ++l) {
        if (kind_ != Recurrence::kSum) {
          const int64_t from = factor_of(begin);
          load(a_, l, from, std::min(length, n_ - from), factors[l]);
        }
        if (is_product) {
          std::fill_n(terms[l], length, T{0});
          if (p == 0) terms[l][start] = factors[l][start];
        } else {
          load(b_, l, begin, length, terms[l]);
        }
        if (p == 0) carry[l] = terms[l][start];
      }
      const bool is_sum = kind_ == Recurrence::kSum;
      const auto part = count == 1
                            ? (is_sum ? scan_part<1, true> : scan_part<1, false>)
                            : (is_sum ? scan_part<kScanLines, true> : scan_part<kScanLines, false>);
      part(factors, p == 0 ? 1 : 0, length, reverse_, carry, terms);
      for (int64_t l = 0; l < count; ++l) {
        store_typed(y_.dtype, terms[l], length, result_at(line + l, begin));
      }
    }
  }

  template <int kLines, bool kIsSum>
  static void scan_part(const T (&factors)[kScanLines][kPart], int64_t begin, int64_t end,
                        bool reverse, T (&carry)[kScanLines], T (&terms)[kScanLines][kPart]) {
    T last[kLines];
    std::copy_n(carry, kLines, last);
    for (int64_t k = begin; k < end; ++k) {
      const int64_t i = reverse ? end - 1 - k : k;
      for (int l = 0; l < kLines; ++l) {
        last[l] = multiply_add(kIsSum ? T{1} : factors[l][i], last[l], terms[l][i]);
        terms[l][i] = last[l];
      }
    }
    std::copy_n(last, kLines, carry);
  }

  Recurrence kind_;
  bool reverse_;
  const TypedOperand &a_, &b_, y_;
  const Shape& shape_;
  int axis_;
  int64_t n_;
  bool is_float32_ = false, is_own_ = false, is_dense_ = false;
};

// Whether all factors are 1.
bool is_one(const TypedOperand& a, const Shape& shape) {
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] > 1 && a.strides[static_cast<size_t>(i)] != 0) return false;
  }
  double factor;
  load_typed(a.dtype, a.data, 1, 1, &factor);
  return factor == 1;
}

// Floats that float32 holds: their products have kernels of their own.
bool is_short_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// The products of `count` ≤ kScanLines lines of x [count, n]: of short floats multiply_line's, of
// others side by side, as each is a chain of dependent products.
template <typename T>
void multiply_along(DType dtype, const std::byte* x, int64_t count, int64_t n, T* products) {
  constexpr int64_t kPart = 64;
  const int64_t size = info(dtype).block_bytes;
  if constexpr (std::is_same_v<T, double>) {
    if (is_short_float(dtype)) {
      for (int64_t l = 0; l < count; ++l) products[l] = multiply_line(dtype, x + l * n * size, n);
      return;
    }
  }
  T factors[kScanLines][kPart] = {}, carry[kScanLines] = {};
  for (int64_t at = 0; at < n; at += kPart) {
    const int64_t length = std::min(kPart, n - at);
    for (int64_t l = 0; l < count; ++l) {
      load_typed(dtype, x + (l * n + at) * size, 1, length, factors[l]);
      if (at == 0) carry[l] = factors[l][0];
    }
    for (int64_t k = at == 0 ? 1 : 0; k < length; ++k) {
      for (int64_t l = 0; l < kScanLines; ++l) {
        carry[l] = multiply_add(carry[l], factors[l][k], T{0});
      }
    }
  }
  std::copy_n(carry, count, products);
}

// The products of `count` ≤ kTypedStep neighbours over n rows of x, `row` elements apart.
template <typename T>
void multiply_across(DType dtype, const std::byte* x, int64_t row, int64_t count, int64_t n,
                     T* products) {
  const int64_t size = info(dtype).block_bytes;
  load_typed(dtype, x, 1, count, products);
  if constexpr (std::is_same_v<T, double>) {
    if (is_short_float(dtype)) {
      return multiply_rows(dtype, x + row * size, row, n - 1, count, products);
    }
  }
  T factors[kTypedStep];
  for (int64_t k = 1; k < n; ++k) {
    load_typed(dtype, x + k * row * size, 1, count, factors);
    for (int64_t l = 0; l < count; ++l) products[l] = multiply_add(products[l], factors[l], T{0});
  }
}

template <typename T>
void multiply_lines_of(ThreadPool& pool, DType dtype, const std::byte* x, int64_t outer,
                       int64_t axis, int64_t inner, std::byte* y) {
  const int64_t size = info(dtype).block_bytes;
  const bool is_across = inner > 1;  // neighbours lie beside each other
  const int64_t row = is_across ? inner : outer;
  const int64_t width = is_across ? kTypedStep : kScanLines;
  const int64_t per_row = divide_up(row, width);
  pool.parallel_for(outer * inner / row * per_row, grain_of(axis * std::min(row, width)),
                    [&](int64_t begin, int64_t end, int) {
                      for (int64_t i = begin; i < end; ++i) {
                        const int64_t first = i % per_row * width,
                                      count = std::min(width, row - first);
                        T products[kTypedStep] = {};
                        if (is_across) {
                          multiply_across(dtype, x + (i / per_row * axis * inner + first) * size,
                                          inner, count, axis, products);
                        } else {
                          multiply_along(dtype, x + first * axis * size, count, axis, products);
                        }
                        store_typed(dtype, products, count, y + (i / per_row * row + first) * size);
                      }
                    });
}

// product_gradient of one line.
void gradient_of_line(const float* x, float dy, int64_t n, float* y) {
  double product = 1;
  for (int64_t i = 0; i < n; ++i) {
    y[i] = static_cast<float>(product);
    product = i == 0 ? double{x[i]} : multiply_add(product, double{x[i]}, 0.0);
  }
  product = dy;
  for (int64_t i = n - 1; i >= 0; --i) {
    const auto behind = static_cast<float>(product);
    y[i] = i == 0 ? behind : behind * y[i] + 0.0f;
    product = multiply_add(double{x[i]}, product, 0.0);
  }
}

}  // namespace

void prod_typed(ThreadPool& pool, DType dtype, const std::byte* x, int64_t outer, int64_t axis,
                int64_t inner, std::byte* y) {
  if (outer * inner == 0) return;
  if (is_float(dtype)) {
    multiply_lines_of<double>(pool, dtype, x, outer, axis, inner, y);
  } else {
    multiply_lines_of<int64_t>(pool, dtype, x, outer, axis, inner, y);
  }
}

void linear_scan(ThreadPool& pool, const TypedOperand& a, const TypedOperand& b, const Shape& shape,
                 int axis, bool reverse, DType to, std::byte* y) {
  if (shape.elements() == 0) return;
  const Recurrence kind = is_one(a, shape) ? Recurrence::kSum : Recurrence::kLinear;
  if (is_float(a.dtype) || is_float(b.dtype)) {
    Scan<double>(kind, reverse, a, b, shape, axis, to, y).run(pool);
  } else {
    Scan<int64_t>(kind, reverse, a, b, shape, axis, to, y).run(pool);
  }
}

void product_scan(ThreadPool& pool, const TypedOperand& x, const Shape& shape, int axis,
                  std::byte* y) {
  if (is_float(x.dtype)) {
    Scan<double>(Recurrence::kProduct, false, x, x, shape, axis, x.dtype, y).run(pool);
  } else {
    Scan<int64_t>(Recurrence::kProduct, false, x, x, shape, axis, x.dtype, y).run(pool);
  }
}

void product_gradient(ThreadPool& pool, const float* x, const float* dy, int64_t outer,
                      int64_t axis, int64_t inner, float* y) {
  if (outer * axis * inner == 0) return;
  const bool is_across = inner > 1;
  const int64_t row = is_across ? inner : outer;
  const int64_t width = is_across ? kTypedStep : kScanLines;
  const int64_t per_row = divide_up(row, width);
  pool.parallel_for(
      outer * inner / row * per_row, grain_of(axis * std::min(row, width)),
      [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i % per_row * width, count = std::min(width, row - first);
          const int64_t start = is_across ? i / per_row * axis * inner + first : first * axis;
          if (is_across) {
            double products[kTypedStep];
            std::fill_n(products, count, 1.0);
            for (int64_t k = 0; k < axis; ++k) {
              product_before_row(x + start + k * inner, count, products, y + start + k * inner);
            }
            for (int64_t l = 0; l < count; ++l) products[l] = dy[i / per_row * inner + first + l];
            for (int64_t k = axis - 1; k >= 0; --k) {
              product_behind_row(x + start + k * inner, k == 0, count, products,
                                 y + start + k * inner);
            }
          } else if (count == kScanLines && has_scan_lines()) {
            const float* lines[kScanLines];
            float* results[kScanLines];
            for (int64_t l = 0; l < kScanLines; ++l) {
              lines[l] = x + start + l * axis;
              results[l] = y + start + l * axis;
            }
            product_gradient_lines(lines, dy + first, axis, results);
          } else {
            for (int64_t l = 0; l < count; ++l) {
              gradient_of_line(x + start + l * axis, dy[first + l], axis, y + start + l * axis);
            }
          }
        }
      });
}

}  // namespace lumen::kernels
