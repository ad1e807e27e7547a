// Normal numbers from uniform ones (Box & Muller).
#pragma once

namespace lumen {

inline constexpr int kNormalGroup = 16;  // normal numbers that are made together

// 16 uniform numbers in [0, 1), multiples of 2⁻²⁴, become 16 normal ones: the i-th of the first
// half, u, is a radius √(−2 ln(1 − u)), of the second half an angle 2πu; radius · cos(angle) and
// radius · sin(angle) take their places. In float, with functions rounded from double, whose errors
// of 1e-15 do not show but for one number in millions. The same bits on every CPU.
void box_muller(float* group);
// The same in double, with the functions of libm.
void box_muller(double* group);

}  // namespace lumen
