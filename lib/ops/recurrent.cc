// Recurrent layers. The part of the gates that comes from the input is one product for all steps,
// an ordinary `linear`; what goes from step to step is one operation.
#include "lib/kernels/recurrent.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/graph/mixed_precision.h"
#include "lib/ops/axes.h"
#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"
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

// Whether input `i` may be bfloat16: the x-part, of which backward only wants the shape, the
// results and the gradient of the first one.
bool reads_bf16(const Node& node, const Slots& slots, size_t i) {
  return graph::in_bf16(node) && (i == 0 || i == slots.result() || i == slots.dout());
}

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
  for (size_t i = 0; i < count; ++i) {
    const DType dtype = node.inputs[i]->dtype;
    fits &= dtype == DType::kF32 || (dtype == DType::kBF16 && reads_bf16(node, slots, i));
  }
  if (!fits) {
    shape_error(node,
                "needs float32 weights [gates * hidden, hidden], bias and states "
                "[batch, hidden]");
  }
  const Node& last = *node.inputs.back();
  if (slots.lengths && (last.dtype != DType::kI32 || !(last.shape == Shape{x[0]}))) {
    shape_error(node, "the lengths must be int32 or int64 [batch]");
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

graph::Bf16Input recurrent_bf16_input(const Node& node, size_t i) {
  const Slots slots(node.attrs);
  const bool is_operand = i + slots.lengths < node.inputs.size();
  return is_operand && reads_bf16(node, slots, i) ? graph::Bf16Input::kRead : graph::Bf16Input::kNo;
}

bool recurrent_gives_bf16(const Node& node) {
  return graph::in_bf16(node) && kernels::recurrent_gives_bf16();
}

// Part of a flat result, or of an input that was one, from number `at` on.
float* part(const graph::Operand& flat, int64_t at) {
  return reinterpret_cast<float*>(flat.data + row_bytes(flat.dtype, at));
}

// --- Forward: → [out | hn | cn (LSTM) | saved] -------------------------------------------------

graph::TypedShape infer_recurrent(const Node& node) {
  const Slots slots(node.attrs);
  require_inputs(node, slots, slots.forward_inputs());
  const Sizes sizes(slots, node.inputs[0]->shape);
  return {graph::stored_type(node),
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
  const int64_t hn = sizes.out.elements(), cn = hn + sizes.state.elements();
  kernels::recurrent_forward(
      *call.pool, kernel_shape(call),
      {.projected = input(0),
       .w = input(1),
       .b = input(2),
       .h0 = input(3),
       .c0 = slots.lstm ? input(4) : nullptr,
       .out = part(call.output, 0),
       .hn = part(call.output, hn),
       .cn = slots.lstm ? part(call.output, cn) : nullptr,
       .saved = part(call.output, slots.lstm ? cn + sizes.state.elements() : cn),
       .projected_type = call.inputs[0].dtype,
       .results_type = call.output.dtype},
      call.workspace);
}

size_t recurrent_workspace(const Node& node, int) {
  return kernels::recurrent_forward_workspace_bytes(kernel_shape(node));
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

// --- Backward: → [dprojected | dr (GRU) | dh0 | dc0 (LSTM)] -------------------------------------
// Gradients of the weight and the bias, which need nothing from step to step, are an ordinary
// product and a sum of dr, the gradient of W h + b; but in a GRU that is dprojected.

std::vector<Shape> backward_results(const Slots& slots, const Sizes& sizes) {
  const Shape gates = {sizes.batch, sizes.steps, slots.gates() * sizes.hidden};
  if (slots.cell == Cell::kGru) return {gates, gates, sizes.state};
  if (slots.lstm) return {gates, sizes.state, sizes.state};
  return {gates, sizes.state};
}

// The states before each step [batch, steps, hidden]; anything finite where there is no step.
Tensor states_before(const Slots& slots, const Sizes& sizes, const Tensor& out, Inputs in) {
  const int64_t steps = sizes.steps;
  if (steps == 0) return out;
  const Tensor h0 = reshape(in[3], {sizes.batch, 1, sizes.hidden});
  if (!slots.reverse) {
    const Tensor parts[] = {h0, slice(out, 1, 0, steps - 1)};
    return concat(parts, 1);
  }
  const Tensor parts[] = {slice(out, 1, 1, steps), h0};
  const Tensor shifted = concat(parts, 1);
  if (!slots.lengths) return shifted;
  const Tensor next = reshape(add(graph::iota(steps), graph::scalar(1)), {1, steps, 1});
  const Tensor lengths = graph::contiguous(in.back(), DType::kF32);
  return where(less_than(next, reshape(lengths, {sizes.batch, 1, 1})), shifted, h0);
}

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
  const graph::AutocastScope precision = graph::gradient_precision(call.node);
  const Tensor all = record(kRecurrentBackward, inputs, call.node.attrs);
  const auto parts = graph::unpack(all, backward_results(slots, sizes));
  const bool gru = slots.cell == Cell::kGru;
  const int64_t rows = sizes.batch * sizes.steps;
  const Tensor dr = reshape(parts[gru], {rows, parts[gru].dim(2)});
  const Tensor out = graph::unpack(call.output, {sizes.out})[0];
  const Tensor before = states_before(slots, sizes, out, call.inputs);
  std::vector<Tensor> gradients(call.inputs.size());
  gradients[0] = parts[0];
  gradients[1] = matmul(graph::transpose(dr, 0, 1), reshape(before, {rows, sizes.hidden}));
  gradients[2] = reshape(sum(dr, 0), {dr.dim(1)});
  gradients[3] = parts[1 + gru];
  if (slots.lstm) gradients[4] = parts[2];
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
  for (const Shape& shape : backward_results(slots, sizes)) total += shape.elements();
  return {graph::stored_type(node), {total}};
}

void run_recurrent_backward(const KernelCall& call) {
  const Slots slots(call.node->attrs);
  const Sizes sizes(slots, call.inputs[0].shape);
  auto input = [&](size_t i) { return call.inputs[i].as<const float>(); };
  const graph::Operand& results = call.inputs[slots.result()];
  const int64_t states = (slots.lstm ? 2 : 1) * sizes.state.elements();
  const int64_t gates = call.inputs[0].shape.elements(), gru = slots.cell == Cell::kGru;
  const int64_t dh0 = (1 + gru) * gates, dc0 = dh0 + sizes.state.elements();
  kernels::recurrent_backward(*call.pool, kernel_shape(call),
                              {.w = input(1),
                               .h0 = input(3),
                               .c0 = slots.lstm ? input(4) : nullptr,
                               .out = part(results, 0),
                               .saved = part(results, sizes.out.elements() + states),
                               .dout = input(slots.dout()),
                               .dhn = input(slots.dhn()),
                               .dcn = slots.lstm ? input(slots.dcn()) : nullptr,
                               .dprojected = part(call.output, 0),
                               .dr = gru ? part(call.output, gates) : nullptr,
                               .dh0 = part(call.output, dh0),
                               .dc0 = slots.lstm ? part(call.output, dc0) : nullptr,
                               .results_type = results.dtype,
                               .dout_type = call.inputs[slots.dout()].dtype,
                               .gradients_type = call.output.dtype},
                              call.workspace);
}

size_t recurrent_backward_workspace(const Node& node, int) {
  return kernels::recurrent_backward_workspace_bytes(kernel_shape(node));
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
  std::vector<Tensor> dprojected(unrolled.steps.size()), dr = dprojected;
  for (size_t i = unrolled.steps.size(); i-- > 0;) {
    const Step& step = unrolled.steps[i];
    const Tensor dout = reshape(slice(in[slots.dout()], 1, step.time, step.time + 1), dh.shape());
    const StepGradient g = step_gradient(slots.cell, step, unrolled.out[i], add(dh, dout), dc);
    const Tensor zero = graph::scalar(0);
    dr[i] = choose(step.exists, concat(g.product, 1), zero);
    dprojected[i] = choose(step.exists, concat(g.projected, 1), zero);
    const Tensor through = matmul(dr[i], in[1]);
    dh = choose(step.exists, g.dh.defined() ? add(through, g.dh) : through, dh);
    if (slots.lstm) dc = choose(step.exists, g.dc, dc);
  }
  std::vector<Tensor> parts = {flatten(unrolled.in_time(dprojected))};
  if (slots.cell == Cell::kGru) parts.push_back(flatten(unrolled.in_time(dr)));
  parts.push_back(flatten(dh));
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

// Of float32.
RecurrentResult run_in_float(Cell cell, const Tensor& x, const RecurrentWeights& w,
                             const Tensor& h0, const Tensor& c0, const RecurrentOptions& options) {
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
  if (options.lengths.defined()) inputs.push_back(in_int32(options.lengths, "recurrent"));
  const Tensor all =
      record(kRecurrent, inputs, attrs_of(cell, options.reverse, options.lengths.defined()));
  std::vector<Shape> shapes = {{x.dim(0), x.dim(1), state[1]}, state};
  if (lstm) shapes.push_back(state);
  const auto parts = graph::unpack(all, shapes);
  return {parts[0], parts[1], lstm ? parts[2] : Tensor()};
}

// Of float64, step by step from other operations.
RecurrentResult run_exactly(Cell cell, const Tensor& x, const RecurrentWeights& w, const Tensor& h0,
                            const Tensor& c0, const RecurrentOptions& options) {
  const int64_t rows = w.hidden.dim(0), hidden = w.hidden.dim(1), batch = x.dim(0);
  const auto check = [&](const char* what, const Tensor& given, const Shape& wanted) {
    if (!given.defined() || given.shape() == wanted) return;
    fail(ErrorKind::kMalformed, "recurrent: ", what, " is ", to_string(given.shape()),
         ", expected ", to_string(wanted));
  };
  check("the hidden weight", w.hidden, {kernels::gates_of(cell) * hidden, hidden});
  check("a bias", w.input_bias, {rows});
  check("a bias", w.hidden_bias, {rows});
  check("h0", h0, {batch, hidden});
  check("c0", c0, {batch, hidden});
  check("the lengths", options.lengths, {batch});
  const auto given_or_zeros = [](const Tensor& given, const Shape& shape) {
    return given.defined() ? graph::contiguous(given, DType::kF64) : zeros(shape, DType::kF64);
  };
  std::vector<Tensor> inputs = {graph::contiguous(linear(x, w.input, w.input_bias), DType::kF64),
                                given_or_zeros(w.hidden, {}), given_or_zeros(w.hidden_bias, {rows}),
                                given_or_zeros(h0, {batch, hidden})};
  const bool lstm = cell == Cell::kLstm;
  if (lstm) inputs.push_back(given_or_zeros(c0, {batch, hidden}));
  if (options.lengths.defined()) inputs.push_back(in_int32(options.lengths, "recurrent"));
  const Unrolled unrolled(attrs_of(cell, options.reverse, options.lengths.defined()), inputs);
  const Tensor out =
      x.dim(1) > 0 ? unrolled.in_time(unrolled.out) : zeros({batch, 0, hidden}, DType::kF64);
  return {out, unrolled.h, lstm ? unrolled.c : Tensor()};
}

RecurrentResult run_layer(Cell cell, const Tensor& x, const RecurrentWeights& w, const Tensor& h0,
                          const Tensor& c0, const RecurrentOptions& options) {
  if (x.rank() != 3 || w.hidden.rank() != 2) {
    fail(ErrorKind::kMalformed, "a recurrent layer of ", to_string(x.shape()), " with weights ",
         to_string(w.hidden.shape()), ": needs [batch, steps, features] and weights of rank 2");
  }
  const DType common =
      float_type_of("recurrent", {x, w.hidden, w.input_bias, w.hidden_bias, h0, c0});
  if (common == DType::kF64) return run_exactly(cell, x, w, h0, c0, options);
  const bool narrow = is_narrow(common);
  const RecurrentWeights weights = {narrow ? widened(w.input) : w.input, widened(w.hidden),
                                    widened(w.input_bias), widened(w.hidden_bias)};
  RecurrentResult result =
      run_in_float(cell, narrow ? widened(x) : x, weights, widened(h0), widened(c0), options);
  if (narrow) {
    for (Tensor* part : {&result.out, &result.h, &result.c}) {
      if (part->defined()) *part = graph::contiguous(*part, common);
    }
  }
  return result;
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
                          .gives_bf16 = recurrent_gives_bf16,
                          .cases = [] { return recurrent_cases(false); }};
const OpDef kRecurrentBackward = {.name = "recurrent_backward",
                                  .infer = infer_recurrent_backward,
                                  .kernel = run_recurrent_backward,
                                  .workspace = recurrent_backward_workspace,
                                  .meaning = recurrent_backward_meaning,
                                  .autocast = graph::Autocast::kInside,
                                  .bf16_input = recurrent_bf16_input,
                                  .gives_bf16 = recurrent_gives_bf16,
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
