// A sparse feed-forward layer: a mixture of experts, and one that all tokens go through.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lib/nn/gated_mlp.h"

namespace lumen::nn {

// Which experts a token goes through, and with which weights. As it stands here: those with the
// largest logits, with their probabilities.
struct ExpertChoice {
  bool sigmoid = false;         // scores are sigmoids of the logits, not probabilities
  std::string correction = "";  // name of what is added to scores for the choice; "": nothing
  bool correction_row = false;  // it is [1, experts], not [experts]
  // Of groups of equally many experts, one behind the other, `used_groups` are chosen first, by the
  // sum of the `best` largest scores in them, and then experts of these (DeepSeek-V2, section
  // 2.2.2; V3, section 2.1.2).
  int64_t groups = 1, used_groups = 1, best = 1;
  double scale = 1;  // of all weights
  double cap = 0;    // of the router's logits (ops::soft_cap); 0: none
  // Not 0: of the largest logit and of the largest but that, which choose two experts, the weight
  // is its probability among the logits that are not below it by more than 2 · jitter of the larger
  // of it and their own size (SparseMixer without its sampling, Liu et al. 2024, as Phi-3.5-MoE is
  // used).
  double jitter = 0;
  // Where the weights of the chosen add up to 1, their scores are divided by max(sum + `added`,
  // `least`).
  double added = 0, least = 0;
};

struct SparseMlpShape {
  std::string name = "mlp";  // of the layer, below which its parameters are; "": of the decoder's
  int64_t hidden, intermediate, experts, used;
  bool normalize = false;       // the probabilities of the chosen add up to 1
  bool biases = false;          // of all experts' gates, ups and downs, and of the router
  bool scales_input = false;    // a chosen one is given x times the sigmoid of its logit, and what
                                // it gives is not weighted (Llama 4)
  double alpha = 0, limit = 0;  // as of ops::ExpertsOptions
  bool gelu = false;            // likewise
  bool gated = true;    // false: experts and the shared one are down(relu(up x)²) (Nemotron 3)
  int64_t latent = 0;   // experts are given fc1_latent_proj x, so wide, of which fc2_latent_proj
                        // makes hidden again; 0: x
  bool scales = false;  // of the experts: per_expert_scale [experts] beside the router
  std::string router = "gate";  // its name
  // Names of an expert's matrices.
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  int64_t shared = 0;  // hidden size of the shared expert; 0: there is none
  std::string shared_name = "shared_expert";
  bool shared_gate = true;   // what it gives is weighted by a router of its own
  double shared_scale = 1;   // of what it gives
  bool shared_bias = false;  // of its gate, up and down, and of the layers around a latent
  ExpertChoice choice{};
  // Low-rank additions to experts are also chosen by the names of their matrices, like those to
  // layers, and not only as those to the parameters of all that transformers 5 has them in,
  // "experts.gate_up_proj" or without gates "experts.up_proj", and "experts.down_proj".
  bool named_alone = true;
};

// Of `experts` gated feed-forward layers each token goes through the `used` ones that the router
// gives the largest logits, or that `choice` says: ops::experts (Shazeer et al. 2017; Fedus et al.
// 2022). The experts are experts.0, experts.1, …; low-rank additions to them are worked into their
// weights, without dropout. Those with biases or beside a shared expert are not named_alone. A bias
// is one for all experts, experts.gate_proj.bias [experts, intermediate] and its like. A
// shared expert adds sigmoid(shared_expert_gate(x)) · shared_expert(x) (Qwen2-MoE), or without a
// gate shared_experts(x) (DeepSeek). Without gates there are no gate_proj. A correction's gradient
// is none.
class SparseMlp {
 public:
  SparseMlp(const Parameters& parameters, const SparseMlpShape& shape);
  // Puts the router's logits [..., experts] into `router_logits`, unless that is null.
  Tensor operator()(const Tensor& x, Tensor* router_logits = nullptr) const {
    return with_router(x, x, router_logits);
  }
  // The same where the router is given something else than the experts.
  Tensor with_router(const Tensor& x, const Tensor& given, Tensor* router_logits) const;

 private:
  Tensor routed(const Tensor& x, const Tensor& logits) const;
  Tensor mixed_sparsely(const Tensor& x, const Tensor& logits) const;
  Tensor of_scaled(const Tensor& x, const Tensor& logits) const;

  SparseMlpShape shape_;
  Linear router_;
  Tensor correction_;  // [experts], or undefined
  std::vector<Tensor> gate_, up_, down_;
  ops::ExpertsOptions options_;
  std::optional<Linear> to_latent_, from_latent_;
  std::optional<std::variant<GatedMlp, PlainMlp>> shared_;
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
