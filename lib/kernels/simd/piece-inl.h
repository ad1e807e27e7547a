// LUMEN_PIECE: how the pieces of which a large kernel is unrolled, and functions of many operations
// that many kernels use, are compiled for the target being compiled. Included behind highway.h,
// once per target; no guard.
//
// Inlined, except in two cases, in which each piece is compiled once and called, because functions
// of thousands of instructions would take the compiler minutes: under sanitizers, whose checks
// every inlined copy brings along, and in Highway's emulation, which writes each operation out,
// byte by byte (machines from before 2008).

#undef LUMEN_PIECE
#if HWY_TARGET == HWY_EMU128 || HWY_IS_ASAN || HWY_IS_TSAN
#define LUMEN_PIECE inline HWY_NOINLINE
#else
#define LUMEN_PIECE HWY_INLINE
#endif
