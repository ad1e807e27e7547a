// A sparse feed-forward layer: a mixture of experts, and one that all tokens go through.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/nn/gated_mlp.h"

namespace lumen::nn {

struct SparseMlpShape {
  std::string name = "mlp";  // of the layer, below which its parameters are
  int64_t hidden, intermediate, experts, used;
  bool normalize = false;       // the probabilities of the chosen add up to 1
  bool biases = false;          // of all experts' gates, ups and downs, and of the router
  double alpha = 0, limit = 0;  // as of ops::ExpertsOptions
  std::string router = "gate";  // its name
  // Names of an expert's matrices.
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  int64_t shared = 0;           // hidden size of the shared expert; 0: there is none
  bool takes_additions = true;  // false: no low-rank ones, for which PEFT would have no names
};

// Of `experts` gated feed-forward layers each token goes through the `used` ones that the router
// gives the largest logits: ops::experts (Shazeer et al. 2017; Fedus et al. 2022). The experts are
// experts.0, experts.1, …; low-rank additions to them, which those with biases or beside a shared
// expert do not take, are worked into their weights, without dropout. A bias is one for all
// experts, experts.gate_proj.bias [experts, intermediate] and its like. A shared expert adds
// sigmoid(shared_expert_gate(x)) · shared_expert(x) (Qwen2-MoE).
class SparseMlp {
 public:
  SparseMlp(const Parameters& parameters, const SparseMlpShape& shape);
  // Puts the router's logits [..., experts] into `router_logits`, unless that is null.
  Tensor operator()(const Tensor& x, Tensor* router_logits = nullptr) const;

 private:
  Linear router_;
  std::vector<Tensor> gate_, up_, down_;
  ops::ExpertsOptions options_;
  std::optional<GatedMlp> shared_;
  std::optional<Linear> shared_gate_;
};

// experts · Σ_e f_e P_e, with f_e the share of the tokens that go through expert e and P_e the mean
// of its probability: least, `used`, where the experts have equally many tokens (Fedus et al. 2022;
// transformers' load_balancing_loss_func). `router_logits` are those of all sparse layers, each
// [..., experts], whose tokens count together; `counts`, float32, of the shape of the tokens, is 1
// of those that count and 0 of the others. [].
Tensor load_balancing_loss(std::span<const Tensor> router_logits, int64_t used,
                           const Tensor& counts);

}  // namespace lumen::nn
