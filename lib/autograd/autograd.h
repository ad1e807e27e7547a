// Reverse-mode differentiation: a graph of values → the graph of their gradients.
//
// Gradients are ordinary tensors: they are fused and planned like everything else, and can be
// differentiated again. Rules come from the operations themselves (OpDef::grad, or the derivative
// of OpDef::meaning). Nothing here recurses: a chain of 100,000 operations is fine.
//
// Building is safe from several threads as long as they do not share leaves or hooks.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lib/graph/tensor.h"

namespace lumen::autograd {

using graph::NoGradScope;
using graph::Tensor;

// A leaf that gradients are wanted for: float memory that operations read and optimizers change.
// Throws Error(kUnsupported) for a type that has no gradient (integers, quantised).
Tensor variable(Array value, std::string name = {});

// The same value, with no way back for gradients.
Tensor detach(const Tensor& x);

// The gradients of Σᵢ Σ outputs[i] · seeds[i] with respect to each of `wrt`, of their shapes; zeros
// where nothing depends on one. An undefined seed stands for ones. With `create_graph` the results
// can be differentiated again. Hooks run. Throws Error(kMalformed) naming the operation if one on
// the way has no gradient, or if a seed has another shape than its output.
std::vector<Tensor> gradients(std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                              std::span<const Tensor> wrt, bool create_graph = false);

struct BackwardOptions {
  bool retain_graph = false;  // allow another backward through the same graph
  bool create_graph = false;  // the gradients can be differentiated again; retains too
};

// Adds the gradients of `output` to all variables that it depends on, computing them in one plan.
// `seed` is the gradient of the output; undefined: ones, which needs a scalar output. Throws
// Error(kMalformed) for a second backward through a graph that was not retained, if nothing here
// requires a gradient, and what gradients() throws.
void backward(const Tensor& output, const Tensor& seed = {}, const BackwardOptions& options = {});

// What backward() has added up for a variable; undefined if nothing yet.
Tensor grad(const Tensor& variable);
// Forgets it.
void zero_grad(const Tensor& variable);

// Calls `hook` with the gradient of `x` when it is known; what it returns, if defined, takes its
// place. Hooks run in the order of registration; one registered by a hook runs from the next time
// on. Throws Error(kMalformed) for an empty one.
using Hook = std::function<Tensor(const Tensor& gradient)>;
void register_hook(const Tensor& x, Hook hook);

// A function with a gradient of its own, as torch.autograd.Function: `backward` gets the inputs,
// the output and its gradient, and returns one gradient per input (undefined: none). apply() throws
// Error(kMalformed) without `forward`, and gradients() without `backward`.
struct Function {
  std::string name;
  std::function<Tensor(std::span<const Tensor> inputs)> forward;
  std::function<std::vector<Tensor>(std::span<const Tensor> inputs, const Tensor& output,
                                    const Tensor& dy)>
      backward;
};
Tensor apply(const Function& function, std::span<const Tensor> inputs);

// Activation recomputation (Chen et al. 2016): the value of body(inputs), of which only `inputs`
// are kept for the backward pass; everything inside is computed a second time when its gradient is
// needed. `body` must depend on nothing else that requires a gradient except variables.
Tensor checkpoint(const std::function<Tensor(std::span<const Tensor> inputs)>& body,
                  std::span<const Tensor> inputs);

}  // namespace lumen::autograd
