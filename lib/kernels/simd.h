// Which instruction set the kernels run on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lumen::kernels {

// Names as users write them, best first: "amx", "avx512", "avx2", "sse4", "sse2" or "neon",
// "scalar". "amx" is AVX-512 and the tiles of amx.h.
std::vector<std::string> compiled_simd_targets();

// The subset of those that this CPU runs.
std::vector<std::string> supported_simd_targets();

// The one in use.
std::string chosen_simd_target();

// True if it is "amx". Does not allocate.
bool uses_amx();

// True if this CPU multiplies bytes with AVX512-VNNI, and if the target in use, then at least
// "avx512", lets it. Do not allocate.
bool has_vnni();
bool uses_vnni();

// Restricts dispatch to `name` or anything below it (LUMEN_SIMD). Throws Error(kUsage) for an
// unknown name and Error(kUnsupported) if the CPU lacks it. Call before the first kernel runs; not
// thread-safe.
void force_simd_target(std::string_view name);

}  // namespace lumen::kernels
