// Which instruction set the kernels run on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::kernels {

// Names as users write them, best first: "amx", "avx512", "avxvnni", "avx2", "sse4", "sse2" or
// "dotprod", "neon". "amx" is AVX-512 and the tiles of amx.h, "avxvnni" AVX2 and AVX-VNNI,
// "dotprod" NEON and the dot products of ARMv8.2. "scalar" on other CPUs.
std::vector<std::string> compiled_simd_targets();

// The subset of those that this CPU runs.
std::vector<std::string> supported_simd_targets();

// The one in use.
std::string chosen_simd_target();

// True if it is "amx". Does not allocate.
bool uses_amx();

// Bits of the vectors whose products of bytes (and of int16) are added to int32 in one instruction
// by the target in use: 512 with AVX512-VNNI, 256 with AVX-VNNI, 0 where there are none. Do not
// allocate.
int vnni_bits();
bool uses_vnni();  // vnni_bits() > 0

// Whether the target in use adds products of bytes to int32 in one instruction: uses_vnni(), or
// "dotprod". Does not allocate.
bool uses_native_dot();

// Whether the target in use is AVX2 or better. Does not allocate.
bool uses_avx2();

// Whether, with uses_avx2(), this CPU multiplies pairs of int16 and adds them to int32 in two
// operations faster than it does multiply-adds of float32: AMD's from Zen 3 on, which start two of
// each in a cycle and in different units. Does not allocate.
bool fast_word_pairs();

// Whether the CPU has dot products of bfloat16 pairs in 512 bits (AVX512-BF16), and whether they
// are to be used: with AVX-512 as the target in use, on CPUs that start as many of them as
// multiply-adds of float32, of which each makes half as many products (AMD's from Zen 4 on; Intel's
// start half as many). Do not allocate.
bool has_bf16_dot();
bool fast_bf16_dot();

// How many bytes ahead of the loads panels of weights are fetched into the first and the second
// cache on this CPU, 0 for not at all, where they meet one row of x and where they meet several;
// derived in measurements/decoding.md. Set before main.
struct PanelPrefetch {
  int64_t first, second;
};
extern const PanelPrefetch panel_prefetch_one_row, panel_prefetch_rows;

// Fetches what lies ahead of a line of a panel that meets kRows rows of x. Always inline: a call
// would move all sums to memory.
template <int kRows>
[[gnu::always_inline]] inline void fetch_panel_ahead(const void* line) {
  const PanelPrefetch& ahead = kRows == 1 ? panel_prefetch_one_row : panel_prefetch_rows;
  const char* p = static_cast<const char*>(line);
  if (ahead.second != 0) __builtin_prefetch(p + ahead.second, 0, 2);
  if (ahead.first != 0) __builtin_prefetch(p + ahead.first, 0, 3);
}

// Restricts dispatch to `name` or anything below it (LUMEN_SIMD). Throws Error(kUsage) for an
// unknown name and Error(kUnsupported) if the CPU lacks it. Call before the first kernel runs; not
// thread-safe.
void force_simd_target(std::string_view name);

}  // namespace lumen::kernels
