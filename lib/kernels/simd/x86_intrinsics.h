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
namespace lumen::kernels {

// Makes GCC have `v`, a vector, in a register here: it reassociates sums of integers, and would
// make all products of a loop first, spill them, and add them up at its end. Other compilers do
// not.
template <class V>
HWY_INLINE void finish([[maybe_unused]] V& v) {
#if HWY_COMPILER_GCC_ACTUAL
  asm("" : "+v"(v));
#endif
}

}  // namespace lumen::kernels
#endif  // HWY_ARCH_X86_64
