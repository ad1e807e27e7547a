// The intrinsics of x86-64, for what Highway has no operation for. Private to this room.
#pragma once

#include <hwy/base.h>

#if HWY_ARCH_X86_64
// GCC 12 warns of undefined vectors inside its own header.
#if HWY_COMPILER_GCC_ACTUAL
HWY_DIAGNOSTICS(push)
HWY_DIAGNOSTICS_OFF(disable : 4701, ignored "-Wmaybe-uninitialized")
HWY_DIAGNOSTICS_OFF(disable : 4700, ignored "-Wuninitialized")
#include <immintrin.h>
HWY_DIAGNOSTICS(pop)
#else
#include <immintrin.h>
#endif
#endif  // HWY_ARCH_X86_64
