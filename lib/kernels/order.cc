#include "lib/kernels/order.h"

#include <cstring>
#include <limits>

namespace lumen::kernels {
namespace {

template <typename T>
struct Keyed {
  T key;
  int64_t index;
};

// Whether a comes before b; ties by index, so that any algorithm is stable.
template <typename T, bool kDescending>
bool is_before(const Keyed<T>& a, const Keyed<T>& b) {
  if (kDescending ? less(b.key, a.key) : less(a.key, b.key)) return true;
  if (kDescending ? less(a.key, b.key) : less(b.key, a.key)) return false;
  return a.index < b.index;
}

// The first `count` in order, to the front of `keys` [count]: a heap that few of the others enter.
template <typename T, bool kDescending>
void order_few(DType dtype, const std::byte* line, int64_t stride, int64_t n, int64_t count,
               Keyed<T>* keys) {
  constexpr auto kBefore = is_before<T, kDescending>;
  visit_line<T>(dtype, line, stride, 0, count, [&](T value, int64_t i) { keys[i] = {value, i}; });
  std::make_heap(keys, keys + count, kBefore);
  T last = keys[0].key;
  visit_line<T>(dtype, line, stride, count, n, [&](T value, int64_t i) {
    if (!(kDescending ? less(last, value) : less(value, last))) return;
    std::pop_heap(keys, keys + count, kBefore);
    keys[count - 1] = {value, i};
    std::push_heap(keys, keys + count, kBefore);
    last = keys[0].key;
  });
  std::sort_heap(keys, keys + count, kBefore);
}

template <typename T>
void few_indices(DType dtype, const std::byte* line, int64_t stride, int64_t n, int64_t count,
                 bool descending, std::byte* workspace, int64_t* indices, int64_t step) {
  auto* const keys = reinterpret_cast<Keyed<T>*>(workspace);
  (descending ? order_few<T, true> : order_few<T, false>)(dtype, line, stride, n, count, keys);
  for (int64_t i = 0; i < count; ++i) indices[i * step] = keys[i].index;
}

// Unsigned numbers whose order is that of floats: equal of both zeros and of all NaN, which are
// last.
template <typename Bits, typename F>
Bits ordered_bits(F x) {
  constexpr Bits kSign = Bits{1} << (sizeof(Bits) * 8 - 1);
  if (x != x) return std::numeric_limits<Bits>::max();
  const F value = x == 0 ? F{0} : x;
  Bits bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits ^ ((bits & kSign) != 0 ? std::numeric_limits<Bits>::max() : kSign);
}

// A key of 32 bits above the index, or one of 64 beside it.
struct Packed {
  static constexpr int kDigits = 4;
  uint64_t both;

  Packed(uint32_t key, int64_t i) : both(uint64_t{key} << 32 | static_cast<uint32_t>(i)) {}
  unsigned digit(int d) const { return both >> (32 + 8 * d) & 255; }
  int64_t index() const { return static_cast<uint32_t>(both); }
  bool operator<(const Packed& other) const { return both < other.both; }
};
struct Wide {
  static constexpr int kDigits = 8;
  uint64_t key, place;

  Wide(uint64_t k, int64_t i) : key(k), place(static_cast<uint64_t>(i)) {}
  unsigned digit(int d) const { return key >> (8 * d) & 255; }
  int64_t index() const { return static_cast<int64_t>(place); }
  bool operator<(const Wide& other) const {
    return key != other.key ? key < other.key : place < other.place;
  }
};

// Items that stand in the order of their indices are sorted by their digits, the last first, each
// time stably; digits that all have in common are passed over. The result is in x or `other`.
template <typename Item>
const Item* sort_items(Item* x, Item* other, int64_t n) {
  constexpr int64_t kFew = 192;  // so few are not worth the counts
  if (n < kFew) {
    std::sort(x, x + n);
    return x;
  }
  int64_t counts[Item::kDigits][256] = {};
  for (int64_t i = 0; i < n; ++i) {
    for (int d = 0; d < Item::kDigits; ++d) ++counts[d][x[i].digit(d)];
  }
  for (int d = 0; d < Item::kDigits; ++d) {
    if (counts[d][x[0].digit(d)] == n) continue;
    int64_t before = 0;
    for (int64_t& count : counts[d]) {
      const int64_t own = count;
      count = before;
      before += own;
    }
    for (int64_t i = 0; i < n; ++i) other[counts[d][x[i].digit(d)]++] = x[i];
    std::swap(x, other);
  }
  return x;
}

template <typename Item>
void sorted_indices(Item* items, int64_t n, int64_t count, int64_t* indices, int64_t step) {
  const Item* const sorted = sort_items(items, items + n, n);
  for (int64_t i = 0; i < count; ++i) indices[i * step] = sorted[i].index();
}

// What a longer line than a packed index can number has wide keys.
bool is_packed(int64_t n) {
  return n <= int64_t{std::numeric_limits<uint32_t>::max()};
}

void order_floats(DType dtype, const std::byte* line, int64_t stride, int64_t n, int64_t count,
                  bool descending, std::byte* workspace, int64_t* indices, int64_t step) {
  if (dtype == DType::kF64 || !is_packed(n)) {
    auto* const items = reinterpret_cast<Wide*>(workspace);
    const uint64_t turn = descending ? ~uint64_t{0} : 0;
    visit_line<double>(dtype, line, stride, 0, n, [&](double value, int64_t i) {
      items[i] = Wide(ordered_bits<uint64_t>(value) ^ turn, i);
    });
    return sorted_indices(items, n, count, indices, step);
  }
  auto* const items = reinterpret_cast<Packed*>(workspace);
  const uint32_t turn = descending ? ~uint32_t{0} : 0;
  visit_line<double>(dtype, line, stride, 0, n, [&](double value, int64_t i) {
    items[i] = Packed(ordered_bits<uint32_t>(static_cast<float>(value)) ^ turn, i);
  });
  sorted_indices(items, n, count, indices, step);
}

// Integers that are at most 2³² − 1 apart are packed.
void order_integers(DType dtype, const std::byte* line, int64_t stride, int64_t n, int64_t count,
                    bool descending, std::byte* workspace, int64_t* indices, int64_t step) {
  auto* const values = reinterpret_cast<int64_t*>(workspace) + 2 * n;
  load_typed(dtype, line, stride, n, values);
  int64_t least = values[0], most = values[0];
  for (int64_t i = 0; i < n; ++i) {
    least = std::min(least, values[i]);
    most = std::max(most, values[i]);
  }
  const auto key = [&](int64_t value) {
    return descending ? static_cast<uint64_t>(most) - static_cast<uint64_t>(value)
                      : static_cast<uint64_t>(value) - static_cast<uint64_t>(least);
  };
  if (key(descending ? least : most) <= std::numeric_limits<uint32_t>::max() && is_packed(n)) {
    auto* const items = reinterpret_cast<Packed*>(workspace);
    for (int64_t i = 0; i < n; ++i) items[i] = Packed(static_cast<uint32_t>(key(values[i])), i);
    return sorted_indices(items, n, count, indices, step);
  }
  auto* const items = reinterpret_cast<Wide*>(workspace);
  visit_line<int64_t>(dtype, line, stride, 0, n,
                      [&](int64_t value, int64_t i) { items[i] = Wide(key(value), i); });
  sorted_indices(items, n, count, indices, step);
}

}  // namespace

void order_line(DType dtype, const std::byte* line, int64_t stride, int64_t n, int64_t count,
                bool descending, std::byte* workspace, int64_t* indices, int64_t step) {
  constexpr int64_t kFew = 64;  // a heap of at most one of so many elements is seldom changed
  if (count == 0) return;
  if (count * kFew <= n) {
    return (is_float(dtype) ? few_indices<double> : few_indices<int64_t>)(dtype, line, stride, n,
                                                                          count, descending,
                                                                          workspace, indices, step);
  }
  (is_float(dtype) ? order_floats : order_integers)(dtype, line, stride, n, count, descending,
                                                    workspace, indices, step);
}

size_t order_workspace_bytes(int64_t n) {
  return 2 * static_cast<size_t>(n) * sizeof(Wide);
}

}  // namespace lumen::kernels
