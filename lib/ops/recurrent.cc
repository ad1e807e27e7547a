// Recurrent layers. The part of the gates that comes from the input is one product for all steps,
// an ordinary `linear`; what goes from step to step is one operation.
#include "lib/kernels/recurrent.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/graph/mixed_precision.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kRecurrent, kRecurrentBackward;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;
using graph::reshape;
using graph::slice;
using kernels::Cell;
using Inputs = std::span<const Tensor>;

// Where the inputs stand: projected, w, b, h0, c0 (LSTM), [the results, dout, dhn, dcn (LSTM) of
// the backward operation], lengths if there are some.
struct Slots {
  explicit Slots(const graph::Attrs& attrs)
      : cell(static_cast<Cell>(attrs.integer("cell"))),
        reverse(attrs.integer("reverse") != 0),
        lengths(attrs.integer("lengths") != 0),
        lstm(cell == Cell::kLstm) {}
  size_t forward_inputs() const { return lstm ? 5 : 4; }
  size_t result() const { return forward_inputs(); }
  size_t dout() const { return result() + 1; }
  size_t dhn() const { return result() + 2; }
  size_t dcn() const { return result() + 3; }
  size_t backward_inputs() const { return forward_inputs() + (lstm ? 4 : 3); }
  int64_t gates() const { return kernels::gates_of(cell); }

  Cell cell;
  bool reverse, lengths, lstm;
};

struct Sizes {
  Sizes(const Slots& slots, const Shape& projected)
      : batch(projected[0]),
        steps(projected[1]),
        hidden(projected[2] / slots.gates()),
        out({batch, steps, hidden}),
        state({batch, hidden}),
        saved({batch, steps, kernels::saved_of(slots.cell) * hidden}) {}
  int64_t batch, steps, hidden;
  Shape out, state, saved;
};

// Shapes of the inputs that both operations begin with, and of the lengths.
void require_inputs(const Node& node, const Slots& slots, size_t count) {
  if (node.inputs.size() != count + slots.lengths) shape_error(node, "an input is missing");
  const Shape& x = node.inputs[0]->shape;
  if (x.rank() != 3 || x[2] % slots.gates() != 0 || x[2] == 0) {
    shape_error(node, "the input must be [batch, steps, gates * hidden]");
  }
  const Sizes sizes(slots, x);
  bool fits = node.inputs[1]->shape == Shape{x[2], sizes.hidden} &&
              node.inputs[2]->shape == Shape{x[2]} && node.inputs[3]->shape == sizes.state &&
              (!slots.lstm || node.inputs[4]->shape == sizes.state);
  const bool narrow = node.inputs[0]->dtype == DType::kBF16 && graph::in_bf16(node);
  for (size_t i = narrow; i < count; ++i) fits &= node.inputs[i]->dtype == DType::kF32;
  if (!fits) {
    shape_error(node,
                "needs float32 weights [gates * hidden, hidden], bias and states "
                "[batch, hidden]");
  }
  const Node& last = *node.inputs.back();
  if (slots.lengths && (last.dtype != DType::kI32 || !(last.shape == Shape{x[0]}))) {
    shape_error(node, "the lengths must be int32 [batch]");
  }
}

kernels::RecurrentShape kernel_shape(const Node& node) {
  const Slots slots(node.attrs);
  const Sizes sizes(slots, node.inputs[0]->shape);
  return {slots.cell,    sizes.batch, sizes.steps,         sizes.hidden,
          slots.reverse, nullptr,     graph::in_bf16(node)};
}

kernels::RecurrentShape kernel_shape(const KernelCall& call) {
  kernels::RecurrentShape shape = kernel_shape(*call.node);
  if (Slots(call.node->attrs).lengths) shape.lengths = call.inputs.back().as<const int32_t>();
  return shape;
}

// Of the x-part backward only wants the shape.
graph::Bf16Input recurrent_bf16_input(const Node& node, size_t i) {
  return i == 0 && graph::in_bf16(node) ? graph::Bf16Input::kRead : graph::Bf16Input::kNo;
}

// --- Forward: → [out | hn | cn (LSTM) | saved] -------------------------------------------------

graph::TypedShape infer_recurrent(const Node& node) {
  const Slots slots(node.attrs);
  require_inputs(node, slots, slots.forward_inputs());
  const Sizes sizes(slots, node.inputs[0]->shape);
  return {DType::kF32,
          {sizes.out.elements() + (slots.lstm ? 2 : 1) * sizes.state.elements() +
           sizes.saved.elements()}};
}

// Lengths are values, known when the layer runs.
void check_lengths(const int32_t* lengths, const Sizes& sizes) {
  for (int64_t b = 0; b < sizes.batch; ++b) {
    if (lengths[b] >= 0 && lengths[b] <= sizes.steps) continue;
    fail(ErrorKind::kMalformed, "recurrent: sample ", b, " has length ", lengths[b],
         ", expected 0 to ", sizes.steps);
  }
}

void run_recurrent(const KernelCall& call) {
  const Slots slots(call.node->attrs);
  const Sizes sizes(slots, call.inputs[0].shape);
  if (slots.lengths) check_lengths(call.inputs.back().as<const int32_t>(), sizes);
  auto input = [&](size_t i) { return call.inputs[i].as<const float>(); };
  float* out = call.output.as<float>();
  float* hn = out + sizes.out.elements();
  float* cn = hn + sizes.state.elements();
  kernels::recurrent_forward(*call.pool, kernel_shape(call),
                             {.projected = input(0),
                              .w = input(1),
                              .b = input(2),
                              .h0 = input(3),
                              .c0 = slots.lstm ? input(4) : nullptr,
                              .out = out,
                              .hn = hn,
                              .cn = slots.lstm ? cn : nullptr,
                              .saved = slots.lstm ? cn + sizes.state.elements() : cn,
                              .projected_type = call.inputs[0].dtype},
                             call.workspace);
}

size_t recurrent_workspace(const Node& node, int threads) {
  return kernels::recurrent_forward_workspace_bytes(kernel_shape(node), threads);
}

// --- Meaning, step by step ---------------------------------------------------------------------

// A step with all that its gradient needs: the state before it, what the cell saves, and where it
// exists ([batch, 1] of 0 and 1, undefined: everywhere).
struct Step {
  int64_t time = 0;
  Tensor h, c;
  std::vector<Tensor> saved;
  Tensor exists;
};

Tensor one_minus(const Tensor& x) {
  return sub(graph::scalar(1), x);
}
Tensor gate(const Tensor& x, int64_t g, int64_t hidden) {
  return slice(x, -1, g * hidden, (g + 1) * hidden);
}
Tensor choose(const Tensor& exists, const Tensor& a, const Tensor& b) {
  return exists.defined() ? where(exists, a, b) : a;
}

class Unrolled {
 public:
  Unrolled(const graph::Attrs& attrs, Inputs in)
      : slots(attrs), sizes(slots, in[0].shape()), h(in[3]), in_(in) {
    if (slots.lstm) c = in[4];
    for (int64_t step = 0; step < sizes.steps; ++step) run(step);
  }

  // [batch, steps, …] from parts [batch, …] in the order of time.
  Tensor in_time(std::vector<Tensor> parts) const {
    if (slots.reverse) std::reverse(parts.begin(), parts.end());
    for (Tensor& part : parts) part = reshape(part, {sizes.batch, 1, part.dim(1)});
    return concat(parts, 1);
  }

  Slots slots;
  Sizes sizes;
  std::vector<Step> steps;
  std::vector<Tensor> out;  // of every step
  Tensor h, c;              // at the end

 private:
  void run(int64_t index) {
    const int64_t time = slots.reverse ? sizes.steps - 1 - index : index, hidden = sizes.hidden;
    Step step{time, h, c, {}, {}};
    if (slots.lengths) {
      const Tensor lengths = reshape(graph::contiguous(in_.back(), DType::kF32), {sizes.batch, 1});
      step.exists = less_than(graph::scalar(static_cast<float>(time)), lengths);
    }
    const Tensor x = reshape(slice(in_[0], 1, time, time + 1), {sizes.batch, in_[0].dim(2)});
    const Tensor r = add(matmul(h, graph::transpose(in_[1], 0, 1)), in_[2]);
    Tensor next;
    if (slots.cell == Cell::kLstm) {
      const Tensor a = add(x, r);
      const Tensor i = sigmoid(gate(a, 0, hidden)), f = sigmoid(gate(a, 1, hidden));
      const Tensor g = tanh(gate(a, 2, hidden)), o = sigmoid(gate(a, 3, hidden));
      const Tensor cell = add(mul(f, c), mul(i, g));
      next = mul(o, tanh(cell));
      step.saved = {i, f, g, o, cell};
      c = choose(step.exists, cell, c);
    } else if (slots.cell == Cell::kGru) {
      const Tensor a = add(x, r);
      const Tensor reset = sigmoid(gate(a, 0, hidden)), z = sigmoid(gate(a, 1, hidden));
      const Tensor inner = gate(r, 2, hidden);
      const Tensor n = tanh(add(gate(x, 2, hidden), mul(reset, inner)));
      next = add(mul(one_minus(z), n), mul(z, h));
      step.saved = {reset, z, n, inner};
    } else {
      next = slots.cell == Cell::kRelu ? relu(add(x, r)) : tanh(add(x, r));
    }
    out.push_back(choose(step.exists, next, graph::scalar(0)));
    h = choose(step.exists, next, h);
    steps.push_back(std::move(step));
  }

  Inputs in_;
};

Tensor recurrent_meaning(const Node& node, Inputs in) {
  const graph::AutocastScope precision = graph::precision_in(node);
  const Unrolled unrolled(node.attrs, in);
  std::vector<Tensor> parts = {flatten(unrolled.in_time(unrolled.out)), flatten(unrolled.h)};
  if (unrolled.slots.lstm) parts.push_back(flatten(unrolled.c));
  std::vector<Tensor> saved;
  for (const Step& step : unrolled.steps) {
    if (step.saved.empty()) continue;
    saved.push_back(choose(step.exists, concat(step.saved, 1), graph::scalar(0)));
  }
  if (!saved.empty()) parts.push_back(flatten(unrolled.in_time(saved)));
  return concat(parts, 0);
}

// --- Backward: → [dprojected | dw | db | dh0 | dc0 (LSTM)] --------------------------------------

std::vector<Tensor> grad_recurrent(const graph::GradCall& call) {
  const Slots slots(call.node.attrs);
  const Sizes sizes(slots, call.inputs[0].shape());
  std::vector<Shape> results = {sizes.out, sizes.state};
  if (slots.lstm) results.push_back(sizes.state);
  const auto d = graph::unpack(call.dy, results);
  const size_t own = slots.forward_inputs();
  std::vector<Tensor> inputs(call.inputs.begin(),
                             call.inputs.begin() + static_cast<std::ptrdiff_t>(own));
  inputs.push_back(call.output);
  inputs.insert(inputs.end(), d.begin(), d.end());
  if (slots.lengths) inputs.push_back(call.inputs.back());
  const Tensor all = record(kRecurrentBackward, inputs, call.node.attrs);
  std::vector<Shape> shapes;
  for (size_t i = 0; i < own; ++i) shapes.push_back(call.inputs[i].shape());
  std::vector<Tensor> gradients = graph::unpack(all, shapes);
  gradients.resize(call.inputs.size());
  return gradients;
}

graph::TypedShape infer_recurrent_backward(const Node& node) {
  const Slots slots(node.attrs);
  require_inputs(node, slots, slots.backward_inputs());
  const Sizes sizes(slots, node.inputs[0]->shape);
  const bool fits = node.inputs[slots.dout()]->shape == sizes.out &&
                    node.inputs[slots.dhn()]->shape == sizes.state &&
                    (!slots.lstm || node.inputs[slots.dcn()]->shape == sizes.state);
  if (!fits) shape_error(node, "the gradients do not fit the results");
  int64_t total = 0;
  for (size_t i = 0; i < slots.forward_inputs(); ++i) total += node.inputs[i]->shape.elements();
  return {DType::kF32, {total}};
}

void run_recurrent_backward(const KernelCall& call) {
  const Slots slots(call.node->attrs);
  const Sizes sizes(slots, call.inputs[0].shape);
  auto input = [&](size_t i) { return call.inputs[i].as<const float>(); };
  const float* out = input(slots.result());
  float* dprojected = call.output.as<float>();
  float* dw = dprojected + call.inputs[0].shape.elements();
  float* db = dw + call.inputs[1].shape.elements();
  float* dh0 = db + call.inputs[2].shape.elements();
  kernels::recurrent_backward(
      *call.pool, kernel_shape(call),
      {.w = input(1),
       .h0 = input(3),
       .c0 = slots.lstm ? input(4) : nullptr,
       .out = out,
       .saved = out + sizes.out.elements() + (slots.lstm ? 2 : 1) * sizes.state.elements(),
       .dout = input(slots.dout()),
       .dhn = input(slots.dhn()),
       .dcn = slots.lstm ? input(slots.dcn()) : nullptr,
       .dprojected = dprojected,
       .dw = dw,
       .db = db,
       .dh0 = dh0,
       .dc0 = slots.lstm ? dh0 + sizes.state.elements() : nullptr},
      call.workspace);
}

size_t recurrent_backward_workspace(const Node& node, int threads) {
  return kernels::recurrent_backward_workspace_bytes(kernel_shape(node), threads);
}

// The gradients that one step gives its gates, by their input and by their product parts, and what
// is left for the state before it without going through the product.
struct StepGradient {
  std::vector<Tensor> projected, product;
  Tensor dh, dc;
};

Tensor through_sigmoid(const Tensor& x, const Tensor& y) {
  return mul(x, mul(y, one_minus(y)));
}
Tensor through_tanh(const Tensor& x, const Tensor& y) {
  return mul(x, one_minus(mul(y, y)));
}

StepGradient step_gradient(Cell cell, const Step& step, const Tensor& out, const Tensor& dh,
                           const Tensor& dc) {
  const std::vector<Tensor>& s = step.saved;
  if (cell == Cell::kLstm) {
    const Tensor &i = s[0], &f = s[1], &g = s[2], &o = s[3], top = tanh(s[4]);
    const Tensor inner = add(dc, through_tanh(mul(dh, o), top));
    const std::vector<Tensor> gates = {
        through_sigmoid(mul(inner, g), i), through_sigmoid(mul(inner, step.c), f),
        through_tanh(mul(inner, i), g), through_sigmoid(mul(dh, top), o)};
    return {gates, gates, Tensor(), mul(inner, f)};
  }
  if (cell == Cell::kGru) {
    const Tensor &r = s[0], &z = s[1], &n = s[2], &inner = s[3];
    const Tensor dn = through_tanh(mul(dh, one_minus(z)), n);
    const Tensor dr = through_sigmoid(mul(dn, inner), r);
    const Tensor dz = through_sigmoid(mul(dh, sub(step.h, n)), z);
    return {{dr, dz, dn}, {dr, dz, mul(dn, r)}, mul(dh, z), Tensor()};
  }
  const Tensor da =
      cell == Cell::kRelu ? mul(dh, less_than(graph::scalar(0), out)) : through_tanh(dh, out);
  return {{da}, {da}, Tensor(), Tensor()};
}

Tensor recurrent_backward_meaning(const Node& node, Inputs in) {
  const graph::AutocastScope precision = graph::precision_in(node);
  const Slots slots(node.attrs);
  std::vector<Tensor> forward(in.begin(),
                              in.begin() + static_cast<std::ptrdiff_t>(slots.forward_inputs()));
  if (slots.lengths) forward.push_back(in.back());
  const Unrolled unrolled(node.attrs, forward);
  Tensor dh = in[slots.dhn()], dc = slots.lstm ? in[slots.dcn()] : Tensor();
  Tensor dw = mul(in[1], graph::scalar(0)), db = mul(in[2], graph::scalar(0));
  std::vector<Tensor> dprojected(unrolled.steps.size());
  for (size_t i = unrolled.steps.size(); i-- > 0;) {
    const Step& step = unrolled.steps[i];
    const Tensor dout = reshape(slice(in[slots.dout()], 1, step.time, step.time + 1), dh.shape());
    const StepGradient g = step_gradient(slots.cell, step, unrolled.out[i], add(dh, dout), dc);
    const Tensor zero = graph::scalar(0);
    const Tensor product = choose(step.exists, concat(g.product, 1), zero);
    dprojected[i] = choose(step.exists, concat(g.projected, 1), zero);
    const Tensor through = matmul(product, in[1]);
    dh = choose(step.exists, g.dh.defined() ? add(through, g.dh) : through, dh);
    if (slots.lstm) dc = choose(step.exists, g.dc, dc);
    dw = add(dw, matmul(graph::transpose(product, 0, 1), step.h));
    db = add(db, reshape(sum(product, 0), db.shape()));
  }
  std::vector<Tensor> parts = {flatten(unrolled.in_time(dprojected)), flatten(dw), db, flatten(dh)};
  if (slots.lstm) parts.push_back(flatten(dc));
  return concat(parts, 0);
}

// --- Cases -------------------------------------------------------------------------------------

graph::Attrs attrs_of(Cell cell, bool reverse, bool lengths) {
  return {{"cell", static_cast<int64_t>(cell)},
          {"reverse", int64_t{reverse}},
          {"lengths", int64_t{lengths}}};
}

// Every cell forwards and backwards in time, with and without lengths, and with products in
// bfloat16; `gradient`: the backward operation.
std::vector<OpCase> recurrent_cases(bool gradient) {
  std::vector<OpCase> cases;
  const char* names[] = {"tanh", "relu", "lstm", "gru"};
  for (int kind = 0; kind < 4; ++kind) {
    for (int variant = 0; variant < 4; ++variant) {
      const bool reverse = variant == 1, lengths = variant > 0, bf16 = variant == 3;
      const graph::Attrs attrs = attrs_of(static_cast<Cell>(kind), reverse, lengths);
      const Slots slots(attrs);
      // The last two are wider than a strip and higher than a tile. Lengths are drawn from 0 to 3.
      // A state between two numbers of bfloat16 may be rounded to either.
      const bool large = variant >= 2;
      const int64_t batch = large ? 14 : 2, steps = large ? 3 : 4;
      const int64_t hidden = large ? 35 : 5, width = slots.gates() * hidden;
      OpCase made{str(names[kind], reverse ? " reversed" : "", lengths ? " with lengths" : "",
                      bf16 ? " in bfloat16" : ""),
                  {f32({batch, steps, width}), f32({width, hidden}), f32({width})},
                  {},
                  -0.5,
                  0.5,
                  bf16       ? 5e-4
                  : gradient ? 5e-5
                             : 1e-5};
      made.inputs.insert(made.inputs.end(), slots.lstm ? 2 : 1, f32({batch, hidden}));
      if (gradient) {
        made.inputs.push_back(f32({batch, steps, hidden}));
        made.inputs.insert(made.inputs.end(), slots.lstm ? 2 : 1, f32({batch, hidden}));
      }
      if (lengths) made.inputs.push_back(i32({batch}));
      made.build = [attrs, gradient, bf16](Inputs in) {
        const graph::AutocastScope precision(bf16 ? DType::kBF16 : DType::kF32);
        if (!gradient) return record(kRecurrent, in, attrs);
        const Slots at(attrs);
        const auto own = static_cast<std::ptrdiff_t>(at.forward_inputs());
        std::vector<Tensor> forward(in.begin(), in.begin() + own);
        std::vector<Tensor> inputs = forward;
        if (at.lengths) forward.push_back(in.back());
        inputs.push_back(record(kRecurrent, forward, attrs));
        inputs.insert(inputs.end(), in.begin() + own, in.end());
        return record(kRecurrentBackward, inputs, attrs);
      };
      cases.push_back(std::move(made));
    }
  }
  return cases;
}

RecurrentResult run_layer(Cell cell, const Tensor& x, const RecurrentWeights& w, const Tensor& h0,
                          const Tensor& c0, const RecurrentOptions& options) {
  if (x.rank() != 3 || w.hidden.rank() != 2) {
    fail(ErrorKind::kMalformed, "a recurrent layer of ", to_string(x.shape()), " with weights ",
         to_string(w.hidden.shape()), ": needs [batch, steps, features] and weights of rank 2");
  }
  Tensor input_bias = w.input_bias, hidden_bias = w.hidden_bias;
  // Both parts of a gate are added up: so may their biases be, once and not for every row. A GRU's
  // new gate multiplies one part by another gate first.
  if (cell != Cell::kGru && input_bias.defined()) {
    if (!(input_bias.shape() == Shape{w.hidden.dim(0)})) {
      fail(ErrorKind::kMalformed, "a recurrent layer with the input's bias ",
           to_string(input_bias.shape()), ": needs [", w.hidden.dim(0), "]");
    }
    if (input_bias.dtype() != DType::kF32) input_bias = graph::contiguous(input_bias, DType::kF32);
    hidden_bias = hidden_bias.defined() ? add(input_bias, hidden_bias) : input_bias;
    input_bias = {};
  }
  if (!hidden_bias.defined()) {
    hidden_bias = graph::expand(graph::scalar(0), Shape{w.hidden.dim(0)});
  }
  std::vector<Tensor> inputs = {linear(x, w.input, input_bias), w.hidden, hidden_bias};
  const Shape state = {x.dim(0), w.hidden.dim(1)};
  const Tensor nothing = graph::expand(graph::scalar(0), state);
  inputs.push_back(h0.defined() ? h0 : nothing);
  const bool lstm = cell == Cell::kLstm;
  if (lstm) inputs.push_back(c0.defined() ? c0 : nothing);
  if (options.lengths.defined()) inputs.push_back(options.lengths);
  const Tensor all =
      record(kRecurrent, inputs, attrs_of(cell, options.reverse, options.lengths.defined()));
  std::vector<Shape> shapes = {{x.dim(0), x.dim(1), state[1]}, state};
  if (lstm) shapes.push_back(state);
  const auto parts = graph::unpack(all, shapes);
  return {parts[0], parts[1], lstm ? parts[2] : Tensor()};
}

}  // namespace

const OpDef kRecurrent = {.name = "recurrent",
                          .infer = infer_recurrent,
                          .kernel = run_recurrent,
                          .workspace = recurrent_workspace,
                          .meaning = recurrent_meaning,
                          .grad = grad_recurrent,
                          .autocast = graph::Autocast::kInside,
                          .bf16_input = recurrent_bf16_input,
                          .cases = [] { return recurrent_cases(false); }};
const OpDef kRecurrentBackward = {.name = "recurrent_backward",
                                  .infer = infer_recurrent_backward,
                                  .kernel = run_recurrent_backward,
                                  .workspace = recurrent_backward_workspace,
                                  .meaning = recurrent_backward_meaning,
                                  .autocast = graph::Autocast::kInside,
                                  .bf16_input = recurrent_bf16_input,
                                  .cases = [] { return recurrent_cases(true); }};

RecurrentResult lstm(const Tensor& x, const RecurrentWeights& weights, const Tensor& h0,
                     const Tensor& c0, const RecurrentOptions& options) {
  return run_layer(Cell::kLstm, x, weights, h0, c0, options);
}

RecurrentResult gru(const Tensor& x, const RecurrentWeights& weights, const Tensor& h0,
                    const RecurrentOptions& options) {
  return run_layer(Cell::kGru, x, weights, h0, {}, options);
}

RecurrentResult rnn(const Tensor& x, const RecurrentWeights& weights, const Tensor& h0,
                    bool use_relu, const RecurrentOptions& options) {
  return run_layer(use_relu ? Cell::kRelu : Cell::kTanh, x, weights, h0, {}, options);
}

}  // namespace lumen::ops
