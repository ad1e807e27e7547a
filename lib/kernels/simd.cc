#include "lib/kernels/simd.h"

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/tiles/amx.h"
// Highway last: the line above chooses its targets.
#include <hwy/highway.h>

#if HWY_ARCH_X86_64
#include <cpuid.h>
#elif HWY_ARCH_ARM_A64 && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lumen::kernels {
namespace {

struct Target {
  int64_t bit;
  const char* name;
};

// Not targets of Highway's: AVX-512 with tiles, AVX2 with AVX-VNNI, NEON with dot products.
constexpr int64_t kAmx = 1, kAvxVnni = 2, kDotProd = 4, kOurs = kAmx | kAvxVnni | kDotProd;
static_assert((HWY_TARGETS & kOurs) == 0);
constexpr int64_t kCompiled = HWY_TARGETS | (HWY_TARGETS & HWY_AVX3 ? kAmx : 0) |
                              (HWY_TARGETS & HWY_AVX2 ? kAvxVnni : 0) |
                              (HWY_ARCH_ARM_A64 && (HWY_TARGETS & HWY_NEON) != 0 ? kDotProd : 0);

// Best first. On x86-64 the fallback is compiled for SSE2, which every such CPU has.
constexpr Target kTargets[] = {
    {kAmx, "amx"},
    {HWY_AVX3, "avx512"},
    {kAvxVnni, "avxvnni"},
    {HWY_AVX2, "avx2"},
    {HWY_SSE4, "sse4"},
    {kDotProd, "dotprod"},
    {HWY_NEON, "neon"},
#if HWY_ARCH_X86_64
    {HWY_EMU128 | HWY_SCALAR, "sse2"},
#else
    {HWY_EMU128 | HWY_SCALAR, "scalar"},
#endif
};

constexpr int64_t kFallback = HWY_EMU128 | HWY_SCALAR;

#if HWY_ARCH_X86_64
bool has_avx512_vnni() {
  return __builtin_cpu_supports("avx512vnni");
}

// A bit of EAX of CPUID leaf 7, subleaf 1.
bool has_feature_7_1(int bit) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> bit & 1) != 0;
}
bool has_avx_vnni() {
  return has_feature_7_1(4);
}
bool has_avx512_bf16() {
  return has_feature_7_1(5);
}

// AMX-TILE, whether the system lets it be used or not.
bool has_tile_registers() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 24 & 1) != 0;
}

// Of AMD's CPUs, 0 for others. CPUID of leaves 0 and 1: the vendor, and the family in EAX.
unsigned amd_family() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return 0;
  const bool amd = ebx == signature_AMD_ebx && ecx == signature_AMD_ecx && edx == signature_AMD_edx;
  if (!amd || __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return 0;
  return (eax >> 8 & 15) + (eax >> 20 & 255);
}
#else
unsigned amd_family() {
  return 0;
}
bool has_avx512_vnni() {
  return false;
}
bool has_avx_vnni() {
  return false;
}
bool has_avx512_bf16() {
  return false;
}
bool has_tile_registers() {
  return false;
}
#endif

// Zen 3 and 4 are one family; Zen 4 has AVX-512.
bool is_zen_3_or_later() {
  return amd_family() >= 0x19;
}

bool is_zen_5_or_later() {
  return amd_family() >= 0x1A;
}

bool is_zen_4() {
  return amd_family() == 0x19 && has_avx512_vnni();
}

bool has_dot_products() {
#if defined(__ARM_FEATURE_DOTPROD)
  return true;
#elif HWY_ARCH_ARM_A64 && defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return false;
#endif
}

// Of Highway's targets. Every aarch64 has NEON: Highway asks for AES as well, and warns on standard
// error where it is missing (a Raspberry Pi 4), but no kernel here uses that.
int64_t highway_targets() {
  if (HWY_ARCH_ARM_A64) return HWY_TARGETS;
  return (hwy::SupportedTargets() | kFallback) & HWY_TARGETS;
}

// What the CPU runs of what is compiled, whatever force_simd_target has chosen since.
int64_t usable_targets() {
  static const int64_t usable = [] {
    const int64_t targets = highway_targets();
    return targets | (targets & HWY_AVX3 && has_native_tiles() ? kAmx : 0) |
           (targets & HWY_AVX2 && has_avx_vnni() ? kAvxVnni : 0) |
           (kCompiled & kDotProd && has_dot_products() ? kDotProd : 0);
  }();
  return usable;
}

int64_t& allowed_targets() {
  static int64_t allowed = usable_targets();
  return allowed;
}

std::vector<std::string> names(int64_t targets) {
  std::vector<std::string> result;
  for (const Target& target : kTargets) {
    if (target.bit & targets) result.emplace_back(target.name);
  }
  return result;
}

}  // namespace

// Highway's own fallback is not in HWY_TARGETS where a better baseline is compiled in (aarch64).
std::vector<std::string> compiled_simd_targets() {
  return names(kCompiled);
}

std::vector<std::string> supported_simd_targets() {
  return names(usable_targets());
}

std::string chosen_simd_target() {
  return names(allowed_targets()).front();
}

bool uses_amx() {
  return allowed_targets() & kAmx;
}

int vnni_bits() {
  static const bool has_512 = has_avx512_vnni();
  const int64_t targets = allowed_targets();
  if (targets & HWY_AVX3) return has_512 ? 512 : 0;
  return targets & kAvxVnni ? 256 : 0;
}

bool uses_vnni() {
  return vnni_bits() > 0;
}

bool uses_native_dot() {
  return uses_vnni() || allowed_targets() & kDotProd;
}

bool uses_avx2() {
  return allowed_targets() & HWY_AVX2;
}

bool fast_word_pairs() {
  static const bool fast = is_zen_3_or_later();
  return fast && uses_avx2();
}

bool has_bf16_dot() {
  static const bool has = has_avx512_bf16() && (usable_targets() & HWY_AVX3) != 0;
  return has;
}

bool fast_bf16_dot() {
  static const bool fast = is_zen_3_or_later();  // Zen 3 has none
  return fast && has_bf16_dot() && allowed_targets() & HWY_AVX3;
}

const PanelPrefetch panel_prefetch_one_row = is_zen_5_or_later()    ? PanelPrefetch{6144, 0}
                                             : is_zen_4()           ? PanelPrefetch{0, 1024}
                                             : is_zen_3_or_later()  ? PanelPrefetch{1024, 0}
                                             : has_tile_registers() ? PanelPrefetch{1536, 4096}
                                             : HWY_ARCH_X86_64      ? PanelPrefetch{2048, 8192}
                                                                    : PanelPrefetch{4096, 0};
const PanelPrefetch panel_prefetch_rows =
    is_zen_4() ? PanelPrefetch{2048, 8192} : panel_prefetch_one_row;

void force_simd_target(std::string_view name) {
  const std::vector<std::string> compiled = compiled_simd_targets();
  int64_t better = 0;  // bits of the targets above `name`
  for (const Target& target : kTargets) {
    if (!(target.bit & kCompiled)) continue;
    if (target.name == name) {
      if (!(target.bit & usable_targets())) {
        fail(ErrorKind::kUnsupported, "this CPU does not run the SIMD target ", quoted(name),
             "; it runs ", supported_simd_targets().front(), " and lower");
      }
      allowed_targets() = usable_targets() & ~better;
      hwy::GetChosenTarget().Update(allowed_targets() & ~kOurs);
      return;
    }
    better |= target.bit;
  }
  std::string known;
  for (const std::string& each : compiled) known += (known.empty() ? "" : ", ") + each;
  fail(ErrorKind::kUsage, "unknown SIMD target ", quoted(name), "; this build has ", known);
}

}  // namespace lumen::kernels
