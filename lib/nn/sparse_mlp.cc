#include "lib/nn/sparse_mlp.h"

#include "lib/base/error.h"
#include "lib/base/strings.h"

namespace lumen::nn {
namespace {

// Below every logit and score, so that no probability is left.
constexpr double kNever = -1e30;

// Of scores [tokens, experts], 1 where an expert is chosen, else 0.
Tensor chosen_of(const ExpertChoice& choice, const Tensor& scores, int64_t used) {
  if (choice.groups == 1) return ops::chosen_experts(scores, used);
  const int64_t experts = scores.dim(1);
  const Tensor groups = graph::reshape(scores, {-1, choice.groups, experts / choice.groups});
  const Tensor sums = ops::sum(ops::topk(groups, choice.best).values, {-1}, false);
  const Tensor open =
      graph::reshape(ops::chosen_experts(sums, choice.used_groups), {-1, choice.groups, 1});
  const Tensor left = ops::where(ops::to_bool(open), groups, kNever);
  return ops::chosen_experts(graph::reshape(left, {-1, experts}), used);
}

}  // namespace

SparseMlp::SparseMlp(const Parameters& parameters, const SparseMlpShape& shape)
    : shape_(shape),
      router_(parameters / shape.router, shape.hidden, shape.experts, shape.biases),
      options_{.used = shape.used,
               .normalize = shape.normalize,
               .alpha = shape.alpha,
               .limit = shape.limit,
               .gelu = shape.gelu} {
  if (shape.scales) {
    options_.scales = parameters.get_f32("router.per_expert_scale", {shape.experts}, Init::ones());
  }
  for (int64_t e = 0; e < shape.experts; ++e) {
    const Parameters expert = parameters / "experts" / str(e);
    const auto matrix = [&](const std::string& name, const char* of_all, int64_t out, int64_t in) {
      const Parameters place = expert / name;
      const Tensor weight = place.get("weight", {out, in}, Init::fan_in_uniform());
      std::vector<std::string> names = {str("experts.", of_all)};
      // By the others' names PEFT means none, or the shared expert.
      if (shape.named_alone && !shape.biases && shape.shared == 0) names.push_back(name);
      return worked_in(weight, place.low_rank(weight, WeightOrder::kOutIn, names));
    };
    const int64_t width = shape.latent > 0 ? shape.latent : shape.hidden;
    const char* const ups = shape.gated ? "gate_up_proj" : "up_proj";
    if (shape.gated) gate_.push_back(matrix(shape.gate, ups, shape.intermediate, width));
    up_.push_back(matrix(shape.up, ups, shape.intermediate, width));
    down_.push_back(matrix(shape.down, "down_proj", width, shape.intermediate));
  }
  if (shape.latent > 0) {
    to_latent_.emplace(parameters / "fc1_latent_proj", shape.hidden, shape.latent,
                       shape.shared_bias);
    from_latent_.emplace(parameters / "fc2_latent_proj", shape.latent, shape.hidden,
                         shape.shared_bias);
  }
  const Parameters shared = parameters / shape.shared_name;
  if (shape.shared > 0 && shape.gated) {
    shared_ = GatedMlp(shared, {.hidden = shape.hidden,
                                .intermediate = shape.shared,
                                .activation = Activation("silu"),
                                .bias = shape.shared_bias,
                                .down_scale = shape.shared_scale});
  } else if (shape.shared > 0) {
    shared_ = PlainMlp(shared, {.hidden = shape.hidden,
                                .intermediate = shape.shared,
                                .activation = Activation("relu2"),
                                .bias = shape.shared_bias});
  }
  if (shape.shared > 0 && shape.shared_gate) {
    shared_gate_.emplace(parameters / (shape.shared_name + "_gate"), shape.hidden, 1, false);
  }
  if (const ExpertChoice& choice = shape.choice; !choice.correction.empty()) {
    const Shape row = {1, shape.experts};
    correction_ = parameters.buffer(
        choice.correction, choice.correction_row ? row : Shape{shape.experts}, Init::zeros());
  }
  if (!shape.biases) return;
  const auto bias = [&](const std::string& name, int64_t out) {
    const Parameters place = parameters / "experts" / name;
    return place.get_f32("bias", {shape.experts, out}, Init::zeros());
  };
  options_.gate_bias = bias(shape.gate, shape.intermediate);
  options_.up_bias = bias(shape.up, shape.intermediate);
  options_.down_bias = bias(shape.down, shape.hidden);
}

Tensor SparseMlp::mixed_sparsely(const Tensor& x, const Tensor& logits) const {
  const Tensor rows = graph::reshape(logits, {-1, shape_.experts});
  Tensor left = rows, weights, chosen;  // of the logits; of the experts
  for (int i = 0; i < 2; ++i) {
    const Tensor best = ops::to_bool(ops::chosen_experts(left, 1));
    const Tensor largest = ops::amax(left, {-1}, true);
    const Tensor size = ops::maximum(ops::abs(rows), largest);
    const Tensor far = ops::gt(ops::sub(largest, left), ops::mul(size, 2 * shape_.choice.jitter));
    const Tensor near = ops::softmax(ops::where(far, kNever, left));
    const Tensor weight = ops::where(best, near, 0);
    weights = weights.defined() ? ops::add(weights, weight) : weight;
    chosen = chosen.defined() ? ops::logical_or(chosen, best) : best;
    left = ops::where(best, kNever, left);
  }
  // As in routed: logarithms of the weights have these as shares in their sum.
  const Tensor logs = ops::where(chosen, ops::log(ops::where(chosen, weights, 1)), kNever);
  const Tensor y =
      ops::experts(x, graph::reshape(logs, logits.shape()), gate_, up_, down_, options_);
  Shape per_token = x.shape();
  per_token[-1] = 1;
  return ops::mul(y, graph::reshape(ops::sum(weights, -1), per_token));
}

// What each of the chosen is given is its own: they are one expert each, one after the other.
Tensor SparseMlp::of_scaled(const Tensor& x, const Tensor& logits) const {
  ops::ExpertsOptions one = options_;
  one.used = 1;
  one.normalize = true;
  Tensor left = logits, sum;  // the logits of those that are not chosen yet
  for (int64_t i = 0; i < shape_.used; ++i) {
    const Tensor given = ops::mul(x, ops::sigmoid(ops::amax(left, {-1}, true)));
    const Tensor y = ops::experts(given, left, gate_, up_, down_, one);
    sum = sum.defined() ? ops::add(sum, y) : y;
    if (i + 1 < shape_.used) {
      left = ops::where(ops::to_bool(ops::chosen_experts(left, 1)), kNever, left);
    }
  }
  return sum;
}

Tensor SparseMlp::routed(const Tensor& x, const Tensor& logits) const {
  const ExpertChoice& choice = shape_.choice;
  if (shape_.scales_input) return of_scaled(x, logits);
  if (choice.jitter > 0) return mixed_sparsely(x, logits);
  const bool bounds_sum = shape_.normalize && (choice.added > 0 || choice.least > 0);
  const bool corrected = correction_.defined();
  const bool by_logits = !choice.sigmoid && !corrected && choice.groups == 1 && !bounds_sum;
  if (by_logits) {
    return scaled(ops::experts(x, logits, gate_, up_, down_, options_), choice.scale);
  }
  // ops::experts chooses and weights by a softmax over logits: over those of the chosen it gives
  // their shares in the sum of their scores, as log σ(l) has the exponential σ(l).
  const Tensor rows = graph::reshape(logits, {-1, shape_.experts});
  const Tensor scores = choice.sigmoid ? ops::sigmoid(rows) : ops::softmax(rows);
  const Tensor chosen = ops::to_bool(
      chosen_of(choice, corrected ? ops::add(scores, correction_) : scores, shape_.used));
  const Tensor logs = choice.sigmoid ? ops::neg(ops::softplus(ops::neg(rows))) : rows;
  const Tensor left = graph::reshape(ops::where(chosen, logs, kNever), logits.shape());
  const Tensor y = ops::experts(x, left, gate_, up_, down_, options_);
  if (shape_.normalize && !bounds_sum) return scaled(y, choice.scale);
  Shape per_token = x.shape();
  per_token[-1] = 1;
  Tensor whole = ops::sum(ops::where(chosen, scores, 0), -1);
  if (bounds_sum) {
    const Tensor divisor = choice.added > 0 ? ops::add(whole, choice.added) : whole;
    whole = ops::div(whole, choice.least > 0 ? ops::maximum(divisor, choice.least) : divisor);
  }
  return ops::mul(y, scaled(graph::reshape(whole, per_token), choice.scale));
}

Tensor SparseMlp::with_router(const Tensor& x, const Tensor& given, Tensor* router_logits) const {
  const Tensor logits = ops::soft_cap(router_(given), shape_.choice.cap);
  if (router_logits != nullptr) *router_logits = logits;
  const Tensor in = to_latent_ ? (*to_latent_)(x) : x;
  Tensor y = routed(in, logits);
  if (from_latent_) y = (*from_latent_)(y);
  if (!shared_) return y;
  const Tensor shared = std::visit([&](const auto& mlp) { return mlp(x); }, *shared_);
  return ops::add(y, shared_gate_ ? ops::mul(shared, ops::sigmoid((*shared_gate_)(x))) : shared);
}

Tensor load_balancing_loss(std::span<const Tensor> router_logits, int64_t used,
                           const Tensor& counts) {
  LUMEN_CHECK(!router_logits.empty());
  const graph::AutocastScope precision(DType::kF32);
  const int64_t experts = router_logits[0].dim(-1);
  const Tensor weights = graph::reshape(counts, {-1, 1});
  // Sums over the tokens of all layers.
  Tensor chosen, probabilities;
  for (const Tensor& logits : router_logits) {
    const Tensor rows = graph::reshape(logits, {-1, experts});
    const Tensor c = ops::sum(ops::mul(ops::chosen_experts(rows, used), weights), 0);
    const Tensor p = ops::sum(ops::mul(ops::softmax(rows), weights), 0);
    chosen = chosen.defined() ? ops::add(chosen, c) : c;
    probabilities = probabilities.defined() ? ops::add(probabilities, p) : p;
  }
  // Without a token that counts the loss is 0.
  const Tensor tokens = ops::mul(ops::maximum(ops::sum(counts, ops::kAllAxes, false), 1.0),
                                 static_cast<double>(router_logits.size()));
  const Tensor product = ops::sum(ops::mul(chosen, probabilities), ops::kAllAxes, false);
  return ops::mul(ops::div(product, ops::mul(tokens, tokens)), static_cast<double>(experts));
}

}  // namespace lumen::nn
