// The Highway targets Lumen compiles; include before anything of Highway. Private to this room.
//
// x86-64: AVX-512 (HWY_AVX3), AVX2, SSE4 and, as fallback, Highway's 128-bit emulation, which the
// compiler turns into baseline SSE2 code. aarch64: NEON. The rest only costs build time: SSSE3
// machines without SSE4.1 are nearly extinct, and what AVX3_DL adds has no Highway operation that
// these kernels use (see dot_rows_vnni.cc for VNNI). A file that has nothing for one of them
// defines LUMEN_FURTHER_DISABLED_TARGETS before; such CPUs take the next best. Builds under
// sanitizers leave out what does not run where they are made (LUMEN_UNUSED_TARGETS, meson.build).
#pragma once

#ifndef LUMEN_FURTHER_DISABLED_TARGETS
#define LUMEN_FURTHER_DISABLED_TARGETS 0
#endif
#ifndef LUMEN_UNUSED_TARGETS
#define LUMEN_UNUSED_TARGETS 0
#endif
#define HWY_DISABLED_TARGETS                                                   \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   LUMEN_FURTHER_DISABLED_TARGETS | LUMEN_UNUSED_TARGETS)

// Highway avoids the emulation with GCC before 12.3 because of one miscompiled operation, the high
// half of 16-bit products (GCC bug 106322). No kernel here uses it, and the tests run every kernel
// on every target.
#define HWY_BROKEN_EMU128 0
