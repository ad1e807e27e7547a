// Overflow-checked unsigned arithmetic for sizes that come from files.
#pragma once

#include <cstdint>
#include <type_traits>

#include "lib/base/error.h"

namespace lumen {

// An unsigned 64-bit size whose +, *, and align_up throw Error(kMalformed) instead of wrapping.
class Checked {
 public:
  constexpr Checked(uint64_t value) : value_(value) {}  // NOLINT: implicit by design
  constexpr uint64_t value() const { return value_; }

  friend Checked operator+(Checked a, Checked b) {
    uint64_t sum;
    if (__builtin_add_overflow(a.value_, b.value_, &sum)) overflow();
    return sum;
  }
  friend Checked operator*(Checked a, Checked b) {
    uint64_t product;
    if (__builtin_mul_overflow(a.value_, b.value_, &product)) overflow();
    return product;
  }
  // The value itself or the next multiple of `alignment`, a power of two.
  Checked align_up(uint64_t alignment) const {
    return (*this + (alignment - 1)).value_ & ~(alignment - 1);
  }
  friend constexpr auto operator<=>(Checked, Checked) = default;

 private:
  [[noreturn]] static void overflow() {
    fail(ErrorKind::kMalformed, "a size in the file does not fit 64 bits");
  }
  uint64_t value_;
};

// `value` as integer type To; throws Error(kMalformed) if it does not fit.
template <typename To, typename From>
To narrow(From value) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  const To result = static_cast<To>(value);
  if (static_cast<From>(result) != value || (result < To{}) != (value < From{})) {
    fail(ErrorKind::kMalformed, "number ", value, " is out of range");
  }
  return result;
}

}  // namespace lumen
