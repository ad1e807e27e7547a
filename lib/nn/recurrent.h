// Recurrent networks: RNN (Elman 1990), LSTM (Hochreiter & Schmidhuber 1997), GRU (Cho et al.
// 2014), as PyTorch computes and names them. Checkpoints may store weights in any type; what goes
// from step to step is float32.
#pragma once

#include <vector>

#include "lib/nn/module.h"
#include "lib/ops/ops.h"

namespace lumen::nn {

enum class RecurrentKind {
  kRnnTanh,  // h' = tanh(W x + b + U h + d)
  kRnnRelu,
  kLstm,  // i f g o = σ σ tanh σ (W x + b + U h + d); c' = f c + i g; h' = o tanh(c')
  kGru,   // r z = σ(…); n = tanh(W x + b + r (U h + d)); h' = (1 − z) n + z h
};

// h and, of an LSTM, c.
struct RecurrentState {
  Tensor h, c = {};
};

// One step: x [batch, input], state [batch, hidden] → the new state; an undefined part stands for
// zeros. Throws Error(kMalformed) for other shapes and for a c that is not of an LSTM. Parameters:
// weight_ih [gates · hidden, input], weight_hh, bias_ih, bias_hh, all starting uniform in
// ±1/√hidden.
class RecurrentCell {
 public:
  // `suffix` ends the parameters' names ("_l0_reverse").
  RecurrentCell(RecurrentKind kind, const Parameters& parameters, int64_t input, int64_t hidden,
                bool bias = true, const std::string& suffix = {});

  RecurrentState operator()(const Tensor& x, const RecurrentState& state = {}) const;

  RecurrentState zeros(int64_t batch) const;
  ops::RecurrentWeights weights() const { return {weight_ih_, weight_hh_, bias_ih_, bias_hh_}; }

 private:
  RecurrentKind kind_;
  int64_t input_, hidden_;
  Tensor weight_ih_, weight_hh_, bias_ih_, bias_hh_;
};

struct RecurrentOptions {
  int64_t layers = 1;
  bool bias = true;
  double dropout = 0;  // of the outputs of all layers but the last, in training
  bool bidirectional = false;
};

// Layers of cells over sequences. Parameters as PyTorch: weight_ih_l0, …, weight_ih_l0_reverse, ….
class Recurrent : public Module {
 public:
  Recurrent(RecurrentKind kind, const Parameters& parameters, int64_t input, int64_t hidden,
            const RecurrentOptions& options = {});

  struct Result {
    Tensor output;         // [batch, steps, directions · hidden], of the last layer
    RecurrentState state;  // [layers · directions, batch, hidden], after the last step
  };
  // x [batch, steps, input]. `lengths` (int32 or int64 [batch], 0 … steps; undefined: all) as
  // PyTorch's packed sequences: steps beyond a row's length do not count, their outputs are zero,
  // and the reverse direction begins at the row's last step. `initial` is of the shape of
  // Result::state; undefined parts stand for zeros. Throws Error(kMalformed) for other shapes.
  Result run(const Tensor& x, const Tensor& lengths = {}, const RecurrentState& initial = {}) const;

  // run(x).output.
  Tensor forward(const Tensor& x) const override;

 private:
  // One direction of one layer.
  ops::RecurrentResult run_cell(const RecurrentCell& cell, const Tensor& x,
                                const RecurrentState& first,
                                const ops::RecurrentOptions& options) const;

  RecurrentKind kind_;
  RecurrentOptions options_;
  int64_t input_, hidden_;
  std::vector<RecurrentCell> cells_;  // layer by layer, forward before reverse
};

class Rnn : public Recurrent {
 public:
  Rnn(const Parameters& parameters, int64_t input, int64_t hidden,
      const RecurrentOptions& options = {}, bool relu = false)
      : Recurrent(relu ? RecurrentKind::kRnnRelu : RecurrentKind::kRnnTanh, parameters, input,
                  hidden, options) {}
};

class Lstm : public Recurrent {
 public:
  Lstm(const Parameters& parameters, int64_t input, int64_t hidden,
       const RecurrentOptions& options = {})
      : Recurrent(RecurrentKind::kLstm, parameters, input, hidden, options) {}
};

class Gru : public Recurrent {
 public:
  Gru(const Parameters& parameters, int64_t input, int64_t hidden,
      const RecurrentOptions& options = {})
      : Recurrent(RecurrentKind::kGru, parameters, input, hidden, options) {}
};

}  // namespace lumen::nn
