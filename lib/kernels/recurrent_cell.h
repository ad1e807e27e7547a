// One step of a recurrent cell for a range of units of one sample. Private to this room.
#pragma once

#include <cstdint>

#include "lib/kernels/recurrent.h"

namespace lumen::kernels::recurrent_cell {

// Arrays of gates have gate g's unit u at [g · hidden + u], as have the saved ones. Those of the
// next sample, `next` floats on per gate or saved array, are fetched ahead: the processor
// does not foresee where rows of the same step begin.
struct Forward {
  int64_t hidden, units, next;
  const float *product, *projected, *b;  // W h, x-part, bias
  float *h, *c;                          // the state, before and after
  float *saved, *out;
  bool projected_bf16;  // it is bfloat16 numbers in the place of floats
};
void forward(Cell cell, const Forward& row);

struct Backward {
  int64_t hidden, units, next;
  const float *saved, *out;      // of this step
  const float *h, *c, *dout;     // the state before this step; the gradient of out
  float *dh, *dc;                // in: of the state after this step; out: of that before it, but
                                 // for what goes through W h
  float *dprojected, *dproduct;  // of the gates' two parts; may be the same memory but in a GRU
  float* db;                     // dproduct is added to it
};
void backward(Cell cell, const Backward& row);

}  // namespace lumen::kernels::recurrent_cell
