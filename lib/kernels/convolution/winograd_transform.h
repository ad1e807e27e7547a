// The linear maps of Winograd's minimal filtering algorithms for 3 × 3 kernels (Lavin and Gray
// 2015, "Fast Algorithms for Convolutional Neural Networks", section 4.1). Private to this room.
#pragma once

#include <cstdint>

namespace lumen::kernels {

// With
//
//        1  0 −1  0        1   0   0        1  1  1  0
//   Bᵀ = 0  1  1  0   G =  ½   ½   ½   Aᵀ =  0  1 −1 −1
//        0 −1  1  0        ½  −½   ½
//        0  1  0 −1        0   0   1
//
// 2 × 2 outputs of a 3 × 3 kernel g over a 4 × 4 piece d of the input are
// Aᵀ [(G g Gᵀ) ⊙ (Bᵀ d B)] A, which is F(2×2, 3×3), so the gradient of g for a gradient e of the
// outputs is Gᵀ [(A e Aᵀ) ⊙ (Bᵀ d B)] G, which is F(3×3, 2×2).
enum class WinogradMap {
  kInput,       // Bᵀ d B: 4 × 4 to 4 × 4
  kFilter,      // G g Gᵀ: 3 × 3 to 4 × 4
  kOutput,      // Aᵀ m A: 4 × 4 to 2 × 2
  kOutputGrad,  // A e Aᵀ: 2 × 2 to 4 × 4
  kFilterGrad,  // Gᵀ m G: 4 × 4 to 3 × 3
};

// Where element (i, j) of matrix t lies, for neighbouring channels: i · row + j · column + t · next
// numbers behind the first.
struct MatrixPlaces {
  int64_t row, column, next;
};

// Maps `count` matrices of each of `width` channels. Whole vectors are read: up to 15 numbers
// beyond `width`. Nothing is written beyond it. noexcept.
void winograd_transform(WinogradMap map, const float* x, const MatrixPlaces& from, float* y,
                        const MatrixPlaces& to, int64_t count, int64_t width);

}  // namespace lumen::kernels
