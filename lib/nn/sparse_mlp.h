// A sparse feed-forward layer: a mixture of experts, and one that all tokens go through.
#pragma once

#include <optional>
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
  int64_t shared = 0;  // hidden size of the shared expert; 0: there is none
};

// Of `experts` gated feed-forward layers each token goes through the `used` ones that the router
// gives the largest logits: ops::experts (Shazeer et al. 2017; Fedus et al. 2022). The experts are
// experts.0, experts.1, …; they take no low-rank additions, the router does. A bias is one for all
// experts, experts.gate_proj.bias [experts, intermediate] and its like. A shared expert adds
// sigmoid(shared_expert_gate(x)) · shared_expert(x) (Qwen2-MoE).
class SparseMlp {
 public:
  SparseMlp(const Parameters& parameters, const SparseMlpShape& shape);
  Tensor operator()(const Tensor& x) const;

 private:
  Linear router_;
  std::vector<Tensor> gate_, up_, down_;
  ops::ExpertsOptions options_;
  std::optional<GatedMlp> shared_;
  std::optional<Linear> shared_gate_;
};

}  // namespace lumen::nn
