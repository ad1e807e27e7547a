#include "lib/kernels/simd.h"

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/kernels/amx.h"
#include "lib/kernels/targets-inl.h"
// Highway last: the line above chooses its targets.
#include <hwy/highway.h>

namespace lumen::kernels {
namespace {

struct Target {
  int64_t bit;
  const char* name;
};

// Not a target of Highway's: AVX-512 with tiles.
constexpr int64_t kAmx = 1;
static_assert((HWY_TARGETS & kAmx) == 0);
constexpr int64_t kCompiled = HWY_TARGETS | (HWY_TARGETS & HWY_AVX3 ? kAmx : 0);

// Best first. On x86-64 the fallback is compiled for SSE2, which every such CPU has.
constexpr Target kTargets[] = {
    {kAmx, "amx"},
    {HWY_AVX3, "avx512"},
    {HWY_AVX2, "avx2"},
    {HWY_SSE4, "sse4"},
    {HWY_NEON, "neon"},
#if HWY_ARCH_X86_64
    {HWY_EMU128 | HWY_SCALAR, "sse2"},
#else
    {HWY_EMU128 | HWY_SCALAR, "scalar"},
#endif
};

constexpr int64_t kFallback = HWY_EMU128 | HWY_SCALAR;

// What the CPU runs of what is compiled, whatever force_simd_target has chosen since.
int64_t usable_targets() {
  static const int64_t usable = [] {
    const int64_t targets = (hwy::SupportedTargets() | kFallback) & HWY_TARGETS;
    return targets | (targets & HWY_AVX3 && has_native_tiles() ? kAmx : 0);
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

bool has_vnni() {
#if HWY_ARCH_X86_64
  // Every CPU with AVX-512 has F16C and FMA.
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vnni");
  return has;
#else
  return false;
#endif
}

bool uses_vnni() {
  return (allowed_targets() & HWY_AVX3) && has_vnni();
}

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
      hwy::GetChosenTarget().Update(allowed_targets() & ~kAmx);
      return;
    }
    better |= target.bit;
  }
  std::string known;
  for (const std::string& each : compiled) known += (known.empty() ? "" : ", ") + each;
  fail(ErrorKind::kUsage, "unknown SIMD target ", quoted(name), "; this build has ", known);
}

}  // namespace lumen::kernels
