#include "lib/kernels/tiles/amx.h"

#include <hwy/base.h>

#include "lib/kernels/matmul.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/tiles/bf16_dot.h"
#include "lib/kernels/tiles/fixed_tiles.h"
#include "lib/tensor/dtype.h"

#if HWY_ARCH_X86_64
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace lumen::kernels {
namespace {

const TileUnit* forced_unit = nullptr;

// Two by two panels of small whole numbers, two steps deep, sums added to other numbers: exact in
// any order of addition.
bool small_product_is_right(const TileUnit& unit) {
  constexpr int64_t kRows = 2 * kTileRows, kDepth = 2 * kTileDepth;
  alignas(64) uint16_t a[kRows * kDepth], b[kRows * kDepth];
  alignas(64) float c[kRows * kRows];
  auto a_at = [](int64_t i, int64_t k) { return static_cast<int>((3 * i + 5 * k) % 15) - 7; };
  auto b_at = [](int64_t j, int64_t k) { return static_cast<int>((7 * j + 2 * k) % 13) - 6; };
  auto bits = [](int value) { return to_bf16(static_cast<float>(value)).bits; };
  for (int64_t i = 0; i < kRows; ++i) {
    const int64_t panel = i / kTileRows, row = i % kTileRows;
    for (int64_t k = 0; k < kDepth; ++k) {
      const int64_t tile = (panel * 2 + k / kTileDepth) * kTileRows * kTileDepth;
      const int64_t step = k % kTileDepth;
      a[tile + row * kTileDepth + step] = bits(a_at(i, k));
      b[tile + step / 2 * 2 * kTileRows + row * 2 + step % 2] = bits(b_at(i, k));
    }
    for (int64_t j = 0; j < kRows; ++j) c[i * kRows + j] = static_cast<float>(i - j);
  }
  const int64_t pitch = kTileRows * kDepth;
  unit.enter();
  unit.multiply({.a_high = a,
                 .a_low = nullptr,
                 .b_high = b,
                 .b_low = nullptr,
                 .a_pitch = pitch,
                 .b_pitch = pitch,
                 .steps = 2,
                 .row_panels = 2,
                 .col_panels = 2,
                 .add = c,
                 .add_stride = kRows,
                 .c = c,
                 .c_stride = kRows,
                 .low_low = false});
  unit.leave();
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kRows; ++j) {
      int64_t sum = i - j;
      for (int64_t k = 0; k < kDepth; ++k) sum += a_at(i, k) * b_at(j, k);
      if (c[i * kRows + j] != static_cast<float>(sum)) return false;
    }
  }
  return true;
}

}  // namespace

bool tiles_work(const TileSupport& support) {
  constexpr uint32_t kFeatures = 1u << 22 | 1u << 24;        // AMX-BF16, AMX-TILE
  constexpr uint64_t kStates = uint64_t{1} << 17 | 1 << 18;  // TILECFG, TILEDATA
  return support.unit != nullptr && (support.features & kFeatures) == kFeatures &&
         (support.enabled_states & kStates) == kStates && support.permit() &&
         small_product_is_right(*support.unit);
}

#if HWY_ARCH_X86_64

// EDX of CPUID leaf 7, subleaf 0.
static uint32_t leaf_7_features() {
  uint32_t eax, ebx, ecx, edx;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) ? edx : 0;
}

bool has_native_tiles() {
  auto permit = [] {
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, Linux 5.16
    constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  };
  static const bool works = [&] {
    constexpr uint32_t kHasXgetbv = 1u << 27;  // OSXSAVE
    TileSupport support{0, 0, permit, native_tile_unit()};
    uint32_t eax, ebx, ecx, edx;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & kHasXgetbv)) {
      uint32_t low, high;
      asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
      support.enabled_states = uint64_t{high} << 32 | low;
    }
    support.features = leaf_7_features();
    return tiles_work(support);
  }();
  return works;
}

static bool has_int8_tiles() {
  constexpr uint32_t kAmxInt8 = 1u << 25;
  return (leaf_7_features() & kAmxInt8) != 0;
}

#else

bool has_native_tiles() {
  return false;
}

static bool has_int8_tiles() {
  return false;
}

#endif

const TileUnit* tile_unit() {
  if (ExactProductsScope::active()) return nullptr;
  if (forced_unit != nullptr) return forced_unit;
  return uses_amx() ? native_tile_unit() : nullptr;
}

const TileUnit* bf16_unit() {
  if (const TileUnit* unit = tile_unit()) return unit;
  return fast_bf16_dot() && !ExactProductsScope::active() ? native_dot_unit() : nullptr;
}

const TileUnit* fixed_unit() {
  const bool usable = uses_int8_tiles() && forced_unit == nullptr && !ExactProductsScope::active();
  return usable ? native_fixed_unit() : nullptr;
}

bool uses_int8_tiles() {
  static const bool has = has_int8_tiles();
  return has && uses_amx();
}

void force_tile_unit(const TileUnit* unit) {
  forced_unit = unit;
}

}  // namespace lumen::kernels
