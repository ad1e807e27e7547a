// One step of a recurrent cell for a range of units of one sample. Private to this room.
#pragma once

#include <cstdint>

#include "lib/kernels/recurrent.h"
#include "lib/kernels/tiles/bf16_panels.h"

namespace lumen::kernels::recurrent_cell {

// Arrays of gates have gate g's unit u at [g · hidden + u], as have the saved ones. Those of the
// next sample, `next` numbers on per gate or saved array, are fetched ahead: the processor does not
// foresee where rows of the same step begin.
struct Forward {
  int64_t hidden, units, next;
  const float *product, *b;  // W h, bias
  Numbers projected;         // x-part
  float *h, *c;              // the state, before and after
  float *saved, *out;
  Numbers results;  // where `saved` will be stored
};
void forward(Cell cell, const Forward& row);

struct Backward {
  int64_t hidden, units, next;
  Numbers saved, out;  // of this step
  Numbers h, c, dout;  // the state before this step; the gradient of out
  float *dh, *dc;  // in: of the state after this step; out: of that before it, but for what goes
                   // through W h
  float *dprojected, *dr;  // of the gates' two parts; dr only in a GRU
  Numbers results;         // where dprojected will be stored
};
void backward(Cell cell, const Backward& row);

}  // namespace lumen::kernels::recurrent_cell
