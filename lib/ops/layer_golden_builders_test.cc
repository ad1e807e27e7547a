// What the names of testdata/goldens/layers.safetensors mean.
#include "lib/ops/golden_builders.h"
#include "lib/ops/loss.h"

namespace lumen::ops {
namespace {

using In = std::span<const Tensor>;
using Out = std::vector<Tensor>;

Tensor attend(In in, AttentionOptions options) {
  options.scale = 0.4;
  const Tensor position = graph::constant(Array::zeros(DType::kI32, {1}));
  return attention(in[0], in[1], in[2], position, options);
}

enum class Layer { kLstm, kGru, kTanh, kRelu };

template <bool kTiled>
Out delta_rule(In in) {
  const auto result = gated_delta_rule(in[0], in[1], in[2], in[3], in[4], {.tiled = kTiled});
  return {result.out, result.state};
}

Out scan_selectively(In in) {
  const auto result = selective_scan(in[0], in[1], in[2], in[3], in[4]);
  return {result.out, result.state};
}

// x, weights, biases, first states, lengths or not → out and last states.
template <Layer kLayer, bool kReverse, bool kLengths>
Out recurrent(In in) {
  const RecurrentWeights weights = {in[1], in[2], in[3], in[4]};
  RecurrentOptions options{.reverse = kReverse};
  if (kLengths) options.lengths = in.back();
  RecurrentResult result;
  if (kLayer == Layer::kLstm) {
    result = lstm(in[0], weights, in[5], in[6], options);
    return {result.out, result.h, result.c};
  }
  result = kLayer == Layer::kGru ? gru(in[0], weights, in[5], options)
                                 : rnn(in[0], weights, in[5], kLayer == Layer::kRelu, options);
  return {result.out, result.h};
}

template <Layer kLayer>
void add_recurrent(const std::string& name, std::map<std::string, GoldenBuild>& builders) {
  builders[name] = recurrent<kLayer, false, false>;
  builders[name + "_lengths"] = recurrent<kLayer, false, true>;
  builders[name + "_reverse"] = recurrent<kLayer, true, false>;
  builders[name + "_reverse_lengths"] = recurrent<kLayer, true, true>;
}

void add_convolutions(std::map<std::string, GoldenBuild>& builders) {
  builders["conv2d_groups"] = [](In in) {
    return Out{conv2d(in[0], in[1], in[2],
                      {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 3})};
  };
  builders["conv2d_depthwise"] = [](In in) {
    return Out{conv2d(in[0], in[1], in[2], {.padding = {1, 1}, .groups = 5})};
  };
  builders["conv2d_pointwise"] = [](In in) { return Out{conv2d(in[0], in[1], in[2])}; };
  builders["conv2d_lenet"] = [](In in) {
    return Out{conv2d(in[0], in[1], in[2], {.padding = {2, 2}})};
  };
  builders["conv1d_options"] = [](In in) {
    return Out{
        conv1d(in[0], in[1], in[2], {.stride = 2, .padding = 2, .dilation = 2, .groups = 2})};
  };
  builders["conv_transpose2d_options"] = [](In in) {
    return Out{conv_transpose2d(
        in[0], in[1], in[2], {.stride = {2, 3}, .padding = {1, 0}, .dilation = {2, 1}, .groups = 2},
        {1, 2})};
  };
  builders["conv_transpose1d"] = [](In in) {
    return Out{conv_transpose1d(in[0], in[1], in[2], {.stride = 2, .padding = 1}, 1)};
  };
}

PoolOptions beyond_padding(bool count_include_pad) {
  return {.kernel = {3, 4},
          .stride = {2, 3},
          .padding = {1, 2},
          .count_include_pad = count_include_pad,
          .ceil_mode = true};
}
constexpr Pool1dOptions kBeyondPadding = {
    .kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true};

void add_pooling(std::map<std::string, GoldenBuild>& builders) {
  builders["max_pool2d_halves"] = [](In in) { return Out{max_pool2d(in[0], {.kernel = {2, 2}})}; };
  builders["max_pool2d_ties"] = [](In in) {
    return Out{max_pool2d(in[0], {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}})};
  };
  builders["max_pool1d"] = [](In in) {
    return Out{max_pool1d(in[0], {.kernel = 3, .stride = 2, .padding = 1})};
  };
  builders["avg_pool2d_uncounted"] = [](In in) {
    return Out{avg_pool2d(
        in[0],
        {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .count_include_pad = false})};
  };
  builders["avg_pool1d"] = [](In in) {
    return Out{avg_pool1d(in[0], {.kernel = 3, .stride = 2, .padding = 1})};
  };
  builders["adaptive_avg_pool1d"] = [](In in) { return Out{adaptive_avg_pool1d(in[0], 4)}; };
  builders["max_pool2d_ceil"] = [](In in) { return Out{max_pool2d(in[0], beyond_padding(true))}; };
  builders["max_pool2d_ceil_halves"] = [](In in) {
    return Out{max_pool2d(in[0], {.kernel = {2, 2}, .ceil_mode = true})};
  };
  builders["max_pool2d_indices"] = [](In in) {
    const Found found = max_pool2d_with_indices(in[0], {.kernel = {3, 2},
                                                        .stride = {2, 2},
                                                        .padding = {1, 1},
                                                        .dilation = {1, 2},
                                                        .ceil_mode = true});
    return Out{found.values, found.indices};
  };
  builders["avg_pool2d_ceil"] = [](In in) { return Out{avg_pool2d(in[0], beyond_padding(true))}; };
  builders["avg_pool2d_ceil_uncounted"] = [](In in) {
    return Out{avg_pool2d(in[0], beyond_padding(false))};
  };
  builders["avg_pool2d_divisor"] = [](In in) {
    return Out{avg_pool2d(in[0], {.kernel = {3, 3},
                                  .stride = {2, 2},
                                  .padding = {1, 1},
                                  .ceil_mode = true,
                                  .divisor_override = 7})};
  };
  builders["max_pool1d_ceil"] = [](In in) { return Out{max_pool1d(in[0], kBeyondPadding)}; };
  builders["avg_pool1d_ceil"] = [](In in) { return Out{avg_pool1d(in[0], kBeyondPadding)}; };
  builders["adaptive_avg_pool2d_odd"] = [](In in) {
    return Out{adaptive_avg_pool2d(in[0], {3, 5})};
  };
  builders["global_avg_pool2d"] = [](In in) { return Out{adaptive_avg_pool2d(in[0], {1, 1})}; };
}

// Of logits, class weights, targets.
CrossEntropyOptions weighed(In in, Reduction reduction) {
  return {.class_weight = in[1], .ignore_index = 2, .reduction = reduction};
}

void add_class_losses(std::map<std::string, GoldenBuild>& builders) {
  builders["cross_entropy_mean"] = [](In in) {
    CrossEntropyOptions smoothed = weighed(in, Reduction::kMean);
    smoothed.label_smoothing = 0.1;
    return Out{cross_entropy(in[0], in[2], smoothed)};
  };
  builders["cross_entropy_rows"] = [](In in) {
    return Out{cross_entropy(in[0], in[2], weighed(in, Reduction::kNone))};
  };
  builders["cross_entropy_probabilities"] = [](In in) {
    return Out{cross_entropy(in[0], in[1], {.label_smoothing = 0.2})};
  };
  builders["nll_mean"] = [](In in) {
    return Out{nll(in[0], in[2], weighed(in, Reduction::kMean))};
  };
  builders["cross_entropy_images"] = [](In in) {
    return Out{cross_entropy(in[0], in[1], {.reduction = Reduction::kNone}),
               cross_entropy(in[0], in[1], {.ignore_index = 0, .label_smoothing = 0.2})};
  };
  builders["nll_images"] = [](In in) {
    return Out{nll(in[0], in[1], {.reduction = Reduction::kNone}), nll(in[0], in[1])};
  };
  builders["nll_sum"] = [](In in) { return Out{nll(in[0], in[2], weighed(in, Reduction::kSum))}; };
}

void add_normalisation(std::map<std::string, GoldenBuild>& builders) {
  builders["batch_norm_images"] = [](In in) {
    return Out{batch_norm_training(in[0], in[1], in[2], 1e-5).y};
  };
  builders["batch_norm_features"] = [](In in) {
    return Out{batch_norm_training(in[0], in[1], in[2], 1e-3).y};
  };
  builders["batch_norm_bare"] = [](In in) {
    return Out{batch_norm_training(in[0], {}, {}, 1e-5).y};
  };
  builders["layer_norm_rows"] = [](In in) { return Out{layer_norm(in[0], in[1], in[2], 1e-5)}; };
  builders["rms_norm_rows"] = [](In in) { return Out{rms_norm(in[0], in[1], 1e-5)}; };
  builders["group_norm"] = [](In in) { return Out{group_norm(in[0], 2, in[1], in[2], 1e-5)}; };
}

void add_attention(std::map<std::string, GoldenBuild>& builders) {
  builders["attention_groups"] = [](In in) { return Out{attend(in, {})}; };
  builders["attention_window"] = [](In in) { return Out{attend(in, {.window = 3})}; };
  builders["attention_cap"] = [](In in) { return Out{attend(in, {.cap = 1.5})}; };
  builders["attention_segments"] = [](In in) { return Out{attend(in, {.segments = in[3]})}; };
  builders["attention_segments_full"] = [](In in) {
    return Out{attend(in, {.causal = false, .segments = in[3]})};
  };
}

}  // namespace

void add_layer_builders(std::map<std::string, GoldenBuild>& builders) {
  add_convolutions(builders);
  add_pooling(builders);
  add_class_losses(builders);
  add_normalisation(builders);
  add_attention(builders);
  builders["delta_rule"] = delta_rule<false>;
  builders["delta_rule_tiled"] = delta_rule<true>;
  builders["delta_rule_by_rows"] = delta_rule<false>;
  builders["selective_scan"] = scan_selectively;
  add_recurrent<Layer::kLstm>("lstm", builders);
  add_recurrent<Layer::kGru>("gru", builders);
  add_recurrent<Layer::kTanh>("rnn_tanh", builders);
  add_recurrent<Layer::kRelu>("rnn_relu", builders);
}

}  // namespace lumen::ops
