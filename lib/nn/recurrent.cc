#include "lib/nn/recurrent.h"

#include "lib/base/error.h"
#include "lib/nn/training_scope.h"
#include "lib/ops/ops.h"

namespace lumen::nn {
namespace {

int64_t gates_of(RecurrentKind kind) {
  return kind == RecurrentKind::kLstm ? 4 : kind == RecurrentKind::kGru ? 3 : 1;
}

void check_state(RecurrentKind kind, const RecurrentState& state, const Shape& shape) {
  for (const Tensor& part : {state.h, state.c}) {
    if (!part.defined() || part.shape() == shape) continue;
    fail(ErrorKind::kMalformed, "a recurrent state cannot be ", to_string(part.shape()),
         ": expected ", to_string(shape));
  }
  if (state.c.defined() && kind != RecurrentKind::kLstm) {
    fail(ErrorKind::kMalformed, "a recurrent state has a c, which only an LSTM has");
  }
}

// The i-th [batch, hidden] of [n, batch, hidden].
Tensor at_layer(const Tensor& x, int64_t i) {
  return graph::reshape(graph::slice(x, 0, i, i + 1), {x.dim(1), x.dim(2)});
}

}  // namespace

RecurrentCell::RecurrentCell(RecurrentKind kind, const Parameters& parameters, int64_t input,
                             int64_t hidden, bool bias, const std::string& suffix)
    : kind_(kind), input_(input), hidden_(hidden) {
  const Init start = Init::within_root(static_cast<double>(hidden));
  const int64_t rows = gates_of(kind) * hidden;
  weight_ih_ = parameters.get("weight_ih" + suffix, {rows, input}, start);
  weight_hh_ = parameters.get_f32("weight_hh" + suffix, {rows, hidden}, start);
  if (!bias) return;
  bias_ih_ = parameters.get_f32("bias_ih" + suffix, {rows}, start);
  bias_hh_ = parameters.get_f32("bias_hh" + suffix, {rows}, start);
}

RecurrentState RecurrentCell::zeros(int64_t batch) const {
  const Tensor zero = graph::expand(graph::scalar(0), {batch, hidden_});
  return {zero, kind_ == RecurrentKind::kLstm ? zero : Tensor()};
}

RecurrentState RecurrentCell::operator()(const Tensor& x, const RecurrentState& state) const {
  if (x.rank() != 2 || x.dim(1) != input_) {
    fail(ErrorKind::kMalformed, "a recurrent cell cannot take ", to_string(x.shape()),
         ": expected [batch, ", input_, "]");
  }
  check_state(kind_, state, {x.dim(0), hidden_});
  RecurrentState before = zeros(x.dim(0));
  if (state.h.defined()) before.h = state.h;
  if (state.c.defined()) before.c = state.c;
  const Tensor projected = ops::linear(x, weight_ih_, bias_ih_);
  const Tensor recurrent = ops::linear(before.h, weight_hh_, bias_hh_);
  auto gate = [&](const Tensor& all, int64_t i) {
    return graph::slice(all, 1, i * hidden_, (i + 1) * hidden_);
  };
  if (kind_ == RecurrentKind::kRnnTanh) return {ops::tanh(ops::add(projected, recurrent))};
  if (kind_ == RecurrentKind::kRnnRelu) return {ops::relu(ops::add(projected, recurrent))};
  if (kind_ == RecurrentKind::kLstm) {
    const Tensor sum = ops::add(projected, recurrent);
    const Tensor i = ops::sigmoid(gate(sum, 0)), f = ops::sigmoid(gate(sum, 1));
    const Tensor g = ops::tanh(gate(sum, 2)), o = ops::sigmoid(gate(sum, 3));
    const Tensor c = ops::add(ops::mul(f, before.c), ops::mul(i, g));
    return {ops::mul(o, ops::tanh(c)), c};
  }
  const Tensor r = ops::sigmoid(ops::add(gate(projected, 0), gate(recurrent, 0)));
  const Tensor z = ops::sigmoid(ops::add(gate(projected, 1), gate(recurrent, 1)));
  const Tensor n = ops::tanh(ops::add(gate(projected, 2), ops::mul(r, gate(recurrent, 2))));
  return {ops::add(n, ops::mul(z, ops::sub(before.h, n)))};
}

Recurrent::Recurrent(RecurrentKind kind, const Parameters& parameters, int64_t input,
                     int64_t hidden, const RecurrentOptions& options)
    : kind_(kind), options_(options), input_(input), hidden_(hidden) {
  if (!(options.dropout >= 0 && options.dropout <= 1)) {
    fail(ErrorKind::kMalformed, "dropout is ", options.dropout, ", expected 0 to 1");
  }
  if (options.layers < 1) fail(ErrorKind::kMalformed, "a recurrent network needs a layer");
  const int64_t directions = options.bidirectional ? 2 : 1;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const int64_t width = layer == 0 ? input : hidden * directions;
    for (int64_t direction = 0; direction < directions; ++direction) {
      cells_.emplace_back(kind, parameters, width, hidden, options.bias,
                          str("_l", layer, direction == 1 ? "_reverse" : ""));
    }
  }
}

Recurrent::Result Recurrent::run(const Tensor& x, const Tensor& lengths,
                                 const RecurrentState& initial) const {
  if (x.rank() != 3 || x.dim(2) != input_ || x.dim(1) < 1) {
    fail(ErrorKind::kMalformed, "a recurrent network cannot take ", to_string(x.shape()),
         ": expected [batch, steps, ", input_, "] with at least one step");
  }
  const int64_t batch = x.dim(0), directions = options_.bidirectional ? 2 : 1;
  const Shape all_states = {static_cast<int64_t>(cells_.size()), batch, hidden_};
  check_state(kind_, initial, all_states);
  std::vector<Tensor> last_h, last_c;
  Tensor values = x;
  for (size_t index = 0; index < cells_.size();) {
    if (index > 0 && training()) values = dropout(values, options_.dropout);
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction, ++index) {
      const auto place = static_cast<int64_t>(index);
      RecurrentState first;
      if (initial.h.defined()) first.h = at_layer(initial.h, place);
      if (initial.c.defined()) first.c = at_layer(initial.c, place);
      const auto result = run_cell(cells_[index], values, first, {lengths, direction == 1});
      outputs.push_back(result.out);
      last_h.push_back(graph::reshape(result.h, {1, batch, hidden_}));
      if (result.c.defined()) last_c.push_back(graph::reshape(result.c, {1, batch, hidden_}));
    }
    values = outputs.size() == 1 ? outputs[0] : ops::concat(outputs, 2);
  }
  RecurrentState state = {ops::concat(last_h, 0)};
  if (kind_ == RecurrentKind::kLstm) state.c = ops::concat(last_c, 0);
  return {values, state};
}

ops::RecurrentResult Recurrent::run_cell(const RecurrentCell& cell, const Tensor& x,
                                         const RecurrentState& first,
                                         const ops::RecurrentOptions& options) const {
  switch (kind_) {
    case RecurrentKind::kLstm:
      return ops::lstm(x, cell.weights(), first.h, first.c, options);
    case RecurrentKind::kGru:
      return ops::gru(x, cell.weights(), first.h, options);
    default:
      return ops::rnn(x, cell.weights(), first.h, kind_ == RecurrentKind::kRnnRelu, options);
  }
}

Tensor Recurrent::forward(const Tensor& x) const {
  return run(x).output;
}

}  // namespace lumen::nn
