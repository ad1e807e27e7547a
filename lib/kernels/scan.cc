// Recurrences along one axis: running sums, running products, and the gradient of products.
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
    const auto is_own = [](const TypedOperand& x) {
      return x.dtype == kOwn && reinterpret_cast<uintptr_t>(x.data) % alignof(T) == 0;
    };
    is_own_ = to == kOwn && (!has_a || is_own(a)) && (!has_b || is_own(b));
    const int last = shape.rank() - 1;
    are_short_ = axis == last && n_ <= kShort && (!has_a || lies_as_result(a)) &&
                 (!has_b || lies_as_result(b));
    is_dense_ = (!has_a || step(a, last) == 1) && (!has_b || step(b, last) == 1);
  }

  void run(ThreadPool& pool) {
    const int64_t lines = n_ > 0 ? shape_.elements() / n_ : 0;
    if (lines == 0) return;
    const int last = shape_.rank() - 1;
    const bool across = axis_ < last;  // neighbouring lines lie beside each other
    const int64_t row = across ? shape_[last] : lines, share = divide_up(lines, pool.threads());
    const int64_t width = across       ? kTypedStep
                          : are_short_ ? short_lines()
                                       : std::min<int64_t>(share, kScanLines);
    const int64_t per_row = divide_up(row, width);
    pool.parallel_for(lines / row * per_row, grain_of(n_ * std::min(row, width)),
                      [&](int64_t begin, int64_t end, int) {
                        for (int64_t i = begin; i < end; ++i) {
                          const int64_t first = i % per_row * width;
                          const int64_t count = std::min(width, row - first);
                          if (across) {
                            T carry[kTypedStep];
                            scan_across(i / per_row * row + first, count, true, carry);
                          } else {
                            scan_along(first, count);
                          }
                        }
                      });
  }

 private:
  static constexpr DType kOwn = std::is_same_v<T, double> ? DType::kF64 : DType::kI64;
  static constexpr int64_t kPart = 64, kShort = 64;

  // How many short lines are taken at once; others than numbers that need no buffer fill those.
  int64_t short_lines() const {
    return (is_own_ || is_float32_) && is_dense_ ? kTypedStep : kTypedStep / n_;
  }

  // Whether elements of `x` are where those of the result are.
  bool lies_as_result(const TypedOperand& x) const {
    for (int i = 0; i < shape_.rank(); ++i) {
      const auto axis = static_cast<size_t>(i);
      if (shape_[i] != 1 && x.strides[axis] != y_.strides[axis]) return false;
    }
    return true;
  }

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

  // `count` ≤ kTypedStep neighbours along the last axis, one element of each after the other;
  // `carry` has theirs before, unless this is where they start.
  void scan_across(int64_t line, int64_t count, bool starts, T* carry) const {
    const int last = shape_.rank() - 1;
    const bool has_a = kind_ != Recurrence::kSum, has_b = kind_ != Recurrence::kProduct;
    // Bytes from a row to the one that is behind it in the memory.
    const auto apart = [&](const TypedOperand& x) {
      return step(x, axis_) * info(x.dtype).block_bytes;
    };
    const int64_t start = reverse_ ? n_ - 1 : 0, forward = reverse_ ? -1 : 1;
    const std::byte* const a = at(a_, line, 0);
    const std::byte* const b = at(b_, line, 0);
    std::byte* const y = result_at(line, 0);
    if (is_dense_ && (is_float32_ || is_own_)) {
      return scan_rows(kind_, y_.dtype, starts, a + factor_of(start) * apart(a_),
                       forward * apart(a_), b + start * apart(b_), forward * apart(b_), n_, count,
                       carry, y + start * apart(y_), forward * apart(y_));
    }
    // Others through buffers; of rows that follow one another some at once.
    const bool follow = is_dense_ && step(y_, axis_) == count &&
                        (!has_a || step(a_, axis_) == count) &&
                        (!has_b || step(b_, axis_) == count);
    const int64_t most = follow ? kTypedStep / count : 1, row = count * int64_t{sizeof(T)};
    T factors[kTypedStep], terms[kTypedStep], results[kTypedStep];
    const auto bytes = [](T* x) { return reinterpret_cast<std::byte*>(x); };
    for (int64_t k = 0, rows; k < n_; k += rows) {
      rows = std::min(most, n_ - k);
      const int64_t begin = reverse_ ? n_ - k - rows : k;
      const int64_t from = factor_of(begin), first = reverse_ ? rows - 1 : 0;
      if (has_a) {
        const int64_t there = std::min(rows, n_ - from);
        load_typed(a_.dtype, a + from * apart(a_), step(a_, last), there * count, factors);
      }
      if (has_b) load_typed(b_.dtype, b + begin * apart(b_), step(b_, last), rows * count, terms);
      scan_rows(kind_, kOwn, starts && k == 0, bytes(factors + first * count), forward * row,
                bytes(terms + first * count), forward * row, rows, count, carry,
                bytes(results + first * count), forward * row);
      store_typed(y_.dtype, results, rows * count, y + begin * apart(y_));
    }
  }

  // `count` lines along the last axis.
  void scan_along(int64_t line, int64_t count) const {
    if constexpr (std::is_same_v<T, double>) {
      if (is_float32_ && is_dense_) {
        const bool in_vectors = n_ > kShort && has_scan_lines();
        if (in_vectors && count == kScanLines) return scan_float_lines(line);
        return scan_own_lines<float>(line, count);
      }
    }
    if (is_own_ && is_dense_) return scan_own_lines<T>(line, count);
    if (are_short_) return scan_short_lines(line, count);
    scan_parts(line, count);
  }

  void scan_float_lines(int64_t line) const {
    const float *a[kScanLines], *b[kScanLines];
    float* y[kScanLines];
    for (int64_t l = 0; l < kScanLines; ++l) {
      a[l] =
          kind_ == Recurrence::kSum ? nullptr : reinterpret_cast<const float*>(at(a_, line + l, 0));
      b[l] = kind_ == Recurrence::kProduct ? nullptr
                                           : reinterpret_cast<const float*>(at(b_, line + l, 0));
      y[l] = reinterpret_cast<float*>(result_at(line + l, 0));
    }
    scan_lines(kind_, reverse_, a, b, n_, y);
  }

  // Steps of kBeside chains, whose carries are given unless they start. a[l] are the factors of the
  // steps to y[l].
  template <Recurrence kKind, int kBeside, typename X>
  static void advance(const X* const* a, const X* const* b, int64_t n, bool reverse, bool starts,
                      T* carry, X* const* y) {
    T value[kBeside];
    const int64_t forward = reverse ? -1 : 1, first = reverse ? n - 1 : 0;
    for (int l = 0; l < kBeside; ++l) {
      value[l] = carry[l];
      if (!starts) continue;
      const X own = kKind == Recurrence::kProduct ? a[l][first] : b[l][first];
      value[l] = static_cast<T>(own);
      y[l][first] = own;
    }
    for (int64_t k = starts ? 1 : 0, i = first + k * forward; k < n; ++k, i += forward) {
      for (int l = 0; l < kBeside; ++l) {
        const auto own = static_cast<T>(kKind == Recurrence::kProduct ? a[l][i] : b[l][i]);
        if constexpr (kKind == Recurrence::kSum) {
          value[l] = multiply_add(T{1}, value[l], own);
        } else if constexpr (kKind == Recurrence::kProduct) {
          value[l] = multiply_add(own, value[l], T{0});
        } else {
          value[l] = multiply_add(static_cast<T>(a[l][i]), value[l], own);
        }
        y[l][i] = static_cast<X>(value[l]);
      }
    }
    std::copy_n(value, kBeside, carry);
  }

  // The same of any recurrence and 1 or kBeside chains.
  static constexpr int kBeside = 4;
  template <typename X>
  static auto advance_of(Recurrence kind, bool one) {
    if (kind == Recurrence::kSum) {
      return one ? advance<Recurrence::kSum, 1, X> : advance<Recurrence::kSum, kBeside, X>;
    }
    if (kind == Recurrence::kProduct) {
      return one ? advance<Recurrence::kProduct, 1, X> : advance<Recurrence::kProduct, kBeside, X>;
    }
    return one ? advance<Recurrence::kLinear, 1, X> : advance<Recurrence::kLinear, kBeside, X>;
  }

  // Lines of numbers that are carried as they are, or of float32.
  template <typename X>
  void scan_own_lines(int64_t line, int64_t count) const {
    const auto of_line = [&](const TypedOperand& x, int64_t l, int64_t i) {
      return reinterpret_cast<const X*>(
          are_short_ ? x.data + ((line + l) * n_ + i) * int64_t{sizeof(X)} : at(x, line + l, i));
    };
    for (int64_t l = 0, beside; l < count; l += beside) {
      beside = count - l < kBeside ? 1 : kBeside;
      const X *a[kBeside], *b[kBeside];
      X* y[kBeside];
      for (int64_t i = 0; i < beside; ++i) {
        a[i] = of_line(a_, l + i, factor_of(0));
        b[i] = of_line(b_, l + i, 0);
        y[i] = const_cast<X*>(of_line(y_, l + i, 0));
      }
      T carry[kBeside] = {};
      advance_of<X>(kind_, beside == 1)(a, b, n_, reverse_, true, carry, y);
    }
  }

  // Short lines of other types that follow one another, through buffers: `count` of at most
  // kTypedStep elements together.
  void scan_short_lines(int64_t line, int64_t count) const {
    T factors[kTypedStep], terms[kTypedStep], results[kTypedStep];
    const int64_t first = line * n_, all = count * n_;
    const auto data = [&](const TypedOperand& x) {
      return x.data + first * info(x.dtype).block_bytes;
    };
    if (kind_ != Recurrence::kSum) load_typed(a_.dtype, data(a_), 1, all, factors);
    if (kind_ != Recurrence::kProduct) load_typed(b_.dtype, data(b_), 1, all, terms);
    for (int64_t l = 0, beside; l < count; l += beside) {
      beside = count - l < kBeside ? 1 : kBeside;
      const T *a[kBeside], *b[kBeside];
      T carry[kBeside] = {}, *y[kBeside];
      for (int64_t i = 0; i < beside; ++i) {
        a[i] = factors + (l + i) * n_ + factor_of(0);
        b[i] = terms + (l + i) * n_;
        y[i] = results + (l + i) * n_;
      }
      advance_of<T>(kind_, beside == 1)(a, b, n_, reverse_, true, carry, y);
    }
    store_typed(y_.dtype, results, all, const_cast<std::byte*>(data(y_)));
  }

  // Of any operands a part of each line after the other; count ≤ kScanLines.
  void scan_parts(int64_t line, int64_t count) const {
    T factors[kScanLines][kPart], terms[kScanLines][kPart], results[kScanLines][kPart];
    T carry[kScanLines] = {};
    const T *a[kScanLines], *b[kScanLines];
    T* y[kScanLines];
    for (int64_t l = 0; l < kScanLines; ++l) {
      a[l] = factors[l];
      b[l] = terms[l];
      y[l] = results[l];
    }
    const int64_t parts = divide_up(n_, kPart);
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t begin = (reverse_ ? parts - 1 - p : p) * kPart;
      const int64_t length = std::min(kPart, n_ - begin), from = factor_of(begin);
      const auto load = [&](const TypedOperand& x, int64_t l, int64_t i, int64_t n, T* to) {
        load_typed(x.dtype, at(x, line + l, i), step(x, axis_), n, to);
      };
      for (int64_t l = 0; l < count; ++l) {
        if (kind_ != Recurrence::kSum) {
          load(a_, l, from, std::min(length, n_ - from), factors[l]);
        }
        if (kind_ != Recurrence::kProduct) load(b_, l, begin, length, terms[l]);
      }
      for (int64_t l = 0, beside; l < count; l += beside) {
        beside = count - l < kBeside ? 1 : kBeside;
        advance_of<T>(kind_, beside == 1)(a + l, b + l, length, reverse_, p == 0, carry + l, y + l);
      }
      for (int64_t l = 0; l < count; ++l) {
        store_typed(y_.dtype, results[l], length, result_at(line + l, begin));
      }
    }
  }

  Recurrence kind_;
  bool reverse_;
  const TypedOperand &a_, &b_, y_;
  const Shape& shape_;
  int axis_;
  int64_t n_;
  bool is_float32_ = false, is_own_ = false, is_dense_ = false;
  bool are_short_ = false;  // lines that follow one another
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
