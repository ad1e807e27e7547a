// Keys and tensor names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include "lib/io/gguf_architecture.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/gguf_architecture_list.h"
#include "lib/io/layer_windows.h"
#include "lib/io/write_gguf.h"

namespace lumen::io {
namespace {

// What an architecture calls otherwise than most (gguf_tensor_names.cc).
constexpr Renaming kAfterBranches[] = {{"post_attention_norm", "post_attention_layernorm"},
                                       {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr Renaming kAroundBranches[] = {{"post_attention_norm", "post_attention_layernorm"},
                                        {"ffn_norm", "pre_feedforward_layernorm"},
                                        {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr auto kPerLayerInput = std::to_array<Renaming>({
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
});
constexpr auto kAltUp = std::to_array<Renaming>({
    {"altup_correct_coef", "altup.correction_coefs"},
    {"altup_correct_scale.weight", "altup.correct_output_scale"},
    {"altup_predict_coef", "altup.prediction_coefs"},
    {"altup_router", "altup.modality_router"},
    {"altup_router_norm", "altup.router_norm"},
    {"laurel_l", "laurel.linear_left"},
    {"laurel_r", "laurel.linear_right"},
    {"laurel_post_norm", "laurel.post_laurel_norm"},
});
constexpr auto kGemma4Own = std::to_array<Renaming>({
    {"layer_output_scale.weight", "layer_scalar"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_gate_inp", "router.proj"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"ffn_gate_exps", "experts.*.gate_proj"},
    {"ffn_up_exps", "experts.*.up_proj"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
    {"ffn_down_exps", "experts.*.down_proj"},
});
constexpr Renaming kGemma3nModel[] = {
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
    {"altup_proj.weight", "model.altup_projections.*.weight"},
    {"altup_unembd_proj.weight", "model.altup_unembed_projections.*.weight"}};
constexpr std::span kGemma4Model = std::span(kGemma3nModel).first(3);
constexpr Renaming kApertus[] = {{"attn_norm", "attention_layernorm"},
                                 {"ffn_norm", "feedforward_layernorm"}};
constexpr Renaming kBitnet[] = {{"attn_sub_norm", "self_attn.attn_sub_norm"},
                                {"ffn_sub_norm", "mlp.ffn_sub_norm"}};
constexpr Renaming kGlm4[] = {{"post_attention_norm", "post_self_attn_layernorm"},
                              {"post_ffw_norm", "post_mlp_layernorm"},
                              {"ffn_up", "mlp.gate_up_proj"}};
constexpr std::span kGlm = std::span(kGlm4).last(1);
template <size_t N, size_t M>
constexpr std::array<Renaming, N + M> both(const std::array<Renaming, N>& first,
                                           const std::array<Renaming, M>& second) {
  std::array<Renaming, N + M> all;
  std::copy(second.begin(), second.end(), std::copy(first.begin(), first.end(), all.begin()));
  return all;
}

// Experts, and what every token goes through beside them.
constexpr auto kExpertMatrices = std::to_array<Renaming>({
    {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    {"ffn_up_exps", "mlp.experts.*.up_proj"},
    {"ffn_down_exps", "mlp.experts.*.down_proj"},
});
constexpr auto kRouter = std::to_array<Renaming>({{"ffn_gate_inp", "mlp.gate"}});
constexpr auto kMoe = both(kRouter, kExpertMatrices);  // without a shared expert
constexpr auto kSharedMatrices = std::to_array<Renaming>({
    {"ffn_gate_shexp", "mlp.shared_mlp.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_mlp.up_proj"},
    {"ffn_down_shexp", "mlp.shared_mlp.down_proj"},
});
constexpr auto kSharedExpert = std::to_array<Renaming>({
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
});

constexpr auto kHunyuanOwn = std::to_array<Renaming>({
    {"attn_q_norm", "self_attn.query_layernorm"},
    {"attn_k_norm", "self_attn.key_layernorm"},
    {"ffn_gate_inp", "mlp.gate.wg"},
});
constexpr auto kHunyuan = both(both(kHunyuanOwn, kExpertMatrices), kSharedMatrices);
constexpr std::span kHunyuanDense = std::span(kHunyuanOwn).first(2);
constexpr Renaming kGpt2[] = {{"attn_norm", "ln_1"},          {"attn_qkv", "attn.c_attn"},
                              {"attn_output", "attn.c_proj"}, {"ffn_norm", "ln_2"},
                              {"ffn_up", "mlp.c_fc"},         {"ffn_down", "mlp.c_proj"}};
constexpr Renaming kGpt2Model[] = {{"token_embd.weight", "transformer.wte.weight"},
                                   {"position_embd.weight", "transformer.wpe.weight"},
                                   {"output_norm.weight", "transformer.ln_f.weight"},
                                   {"output_norm.bias", "transformer.ln_f.bias"}};
constexpr Renaming kGptNeox[] = {{"attn_qkv", "attention.query_key_value"},
                                 {"attn_output", "attention.dense"},
                                 {"ffn_up", "mlp.dense_h_to_4h"},
                                 {"ffn_down", "mlp.dense_4h_to_h"}};
// Of layers with two norms that before the mlp is the usual one (backbone_names.cc).
constexpr Renaming kFalcon[] = {{"attn_norm_2", "ln_attn"},
                                {"attn_qkv", "self_attention.query_key_value"},
                                {"attn_output", "self_attention.dense"},
                                {"ffn_up", "mlp.dense_h_to_4h"},
                                {"ffn_down", "mlp.dense_4h_to_h"}};
// Heads are in groups of one.
constexpr std::span kBloom = std::span(kFalcon).last(4);
constexpr Renaming kBloomModel[] = {
    {"token_embd_norm.weight", "model.word_embeddings_layernorm.weight"},
    {"token_embd_norm.bias", "model.word_embeddings_layernorm.bias"}};
constexpr Renaming kMpt[] = {{"attn_norm", "norm_1"},          {"attn_qkv", "attn.Wqkv"},
                             {"attn_output", "attn.out_proj"}, {"ffn_norm", "norm_2"},
                             {"ffn_up", "ffn.up_proj"},        {"ffn_down", "ffn.down_proj"}};
constexpr Renaming kStarcoderModel[] = {{"position_embd.weight", "model.wpe.weight"}};
constexpr auto kSeedOss =
    std::to_array<Renaming>({{"post_attention_norm", "post_attention_layernorm"}});
constexpr Renaming kStablelm[] = {{"attn_q_norm", "self_attn.q_layernorm"},
                                  {"attn_k_norm", "self_attn.k_layernorm"}};
constexpr Renaming kStarcoder2[] = {{"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}};
constexpr Renaming kPhi2[] = {
    {"attn_output", "self_attn.dense"}, {"ffn_up", "mlp.fc1"}, {"ffn_down", "mlp.fc2"}};
constexpr Renaming kPhi2Model[] = {{"output_norm.weight", "model.final_layernorm.weight"},
                                   {"output_norm.bias", "model.final_layernorm.bias"},
                                   {"output.bias", "lm_head.bias"}};
constexpr std::span kOutputBias = std::span(kPhi2Model).last(1);
// A is −exp(A_log): a model has the one or the other.
constexpr auto kDeltaNet = std::to_array<Renaming>({
    {"post_attention_norm", "post_attention_layernorm"},
    {"attn_qkv", "linear_attn.in_proj_qkv"},
    {"attn_gate", "linear_attn.in_proj_z"},
    {"ssm_conv1d", "linear_attn.conv1d"},
    {"ssm_a", "linear_attn.A"},
    {"ssm_a", "linear_attn.A_log"},
    {"ssm_dt.bias", "linear_attn.dt_bias"},
    {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj"},
});
constexpr auto kRates = std::to_array<Renaming>(
    {{"ssm_beta", "linear_attn.in_proj_b"}, {"ssm_alpha", "linear_attn.in_proj_a"}});
// Older files have qkv and z in one, as Hugging Face.
constexpr auto kFusedInputs = std::to_array<Renaming>(
    {{"ssm_ba", "linear_attn.in_proj_ba"}, {"ssm_in", "linear_attn.in_proj_qkvz"}});
constexpr Renaming kFused[] = {{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}};

// Matrices of all experts are one tensor.
constexpr auto kMinimax = std::to_array<Renaming>({
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
    {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.*.w2"},
    {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"},
});
constexpr std::span kMixtral = std::span(kMinimax).first(4);  // without corrections
constexpr auto kSharedGate =
    std::to_array<Renaming>({{"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}});
constexpr auto kQwen2Moe = both(both(kMoe, kSharedGate), kSharedExpert);

constexpr auto kGraniteMoe =
    std::to_array<Renaming>({{"ffn_gate_inp", "block_sparse_moe.router.layer"},
                             {"ffn_gate_exps", "block_sparse_moe.experts.*.gate_proj"},
                             {"ffn_up_exps", "block_sparse_moe.experts.*.up_proj"},
                             {"ffn_down_exps", "block_sparse_moe.experts.*.down_proj"},
                             {"ffn_gate_shexp", "shared_mlp.gate_proj"},
                             {"ffn_up_shexp", "shared_mlp.up_proj"},
                             {"ffn_down_shexp", "shared_mlp.down_proj"}});

// Of models of Granite 4.0 with attention in all layers, which are called Granite's in GGUF.
constexpr Renaming kGranite[] = {
    {"ffn_gate", "mlp.gate_proj"},      {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},      {"ffn_gate", "shared_mlp.gate_linear"},
    {"ffn_up", "shared_mlp.up_linear"}, {"ffn_down", "shared_mlp.output_linear"}};

constexpr auto kGemma3n = both(kPerLayerInput, kAltUp);
constexpr auto kGemma4 = both(kPerLayerInput, kGemma4Own);
// Whole names: ssm_a and ssm_d have nothing behind them, as of a DeltaNet.
constexpr auto kMamba = std::to_array<Renaming>({
    {"ssm_in", "mamba.in_proj"},
    {"ssm_conv1d", "mamba.conv1d"},
    {"ssm_a", "mamba.A"},
    {"ssm_a", "mamba.A_log"},
    {"ssm_d", "mamba.D"},
    {"ssm_dt.bias", "mamba.dt_bias"},
    {"ssm_norm", "mamba.norm"},
    {"ssm_out", "mamba.out_proj"},
});
constexpr auto kSharedMlp = std::to_array<Renaming>({
    {"ffn_gate", "shared_mlp.gate_linear"},
    {"ffn_up", "shared_mlp.up_linear"},
    {"ffn_down", "shared_mlp.output_linear"},
});
constexpr auto kGraniteHybrid = both(both(kMamba, kSharedMlp), kGraniteMoe);
// The norm has nothing behind its name in files, though all others have.
constexpr auto kFalconMlp = std::to_array<Renaming>({
    {"ffn_norm", "pre_ff_layernorm.weight"},
    {"ffn_norm.weight", "pre_ff_layernorm.weight"},
    {"ffn_gate", "feed_forward.gate_proj"},
    {"ffn_up", "feed_forward.up_proj"},
    {"ffn_down", "feed_forward.down_proj"},
});
constexpr auto kFalconH1 = both(kMamba, kFalconMlp);
constexpr Renaming kFalconH1Model[] = {{"output_norm.weight", "model.final_layernorm.weight"}};
// All that a layer is made of, whatever that is, is called mixer.
constexpr auto kMamba2 = std::to_array<Renaming>({
    {"attn_norm", "norm"},
    {"ssm_in", "mixer.in_proj"},
    {"ssm_conv1d", "mixer.conv1d"},
    {"ssm_a", "mixer.A"},
    {"ssm_a", "mixer.A_log"},
    {"ssm_d", "mixer.D"},
    {"ssm_dt.bias", "mixer.dt_bias"},
    {"ssm_norm", "mixer.norm"},
    {"ssm_out", "mixer.out_proj"},
});
constexpr auto kMamba1 = std::to_array<Renaming>({
    {"attn_norm", "norm"},
    {"ssm_in", "mixer.in_proj"},
    {"ssm_conv1d", "mixer.conv1d"},
    {"ssm_x", "mixer.x_proj"},
    {"ssm_dt", "mixer.dt_proj"},
    {"ssm_a", "mixer.A"},
    {"ssm_a", "mixer.A_log"},
    {"ssm_d", "mixer.D"},
    {"ssm_out", "mixer.out_proj"},
});
constexpr auto kJamba = std::to_array<Renaming>({
    {"ffn_norm", "pre_ff_layernorm"},
    {"ssm_in", "mamba.in_proj"},
    {"ssm_conv1d", "mamba.conv1d"},
    {"ssm_x", "mamba.x_proj"},
    {"ssm_dt", "mamba.dt_proj"},
    {"ssm_dt_norm", "mamba.dt_layernorm"},
    {"ssm_b_norm", "mamba.b_layernorm"},
    {"ssm_c_norm", "mamba.c_layernorm"},
    {"ssm_a", "mamba.A"},
    {"ssm_a", "mamba.A_log"},
    {"ssm_d", "mamba.D"},
    {"ssm_out", "mamba.out_proj"},
    {"ffn_gate", "feed_forward.gate_proj"},
    {"ffn_up", "feed_forward.up_proj"},
    {"ffn_down", "feed_forward.down_proj"},
    {"ffn_gate_inp", "feed_forward.router"},
    {"ffn_gate_exps", "feed_forward.experts.*.gate_proj"},
    {"ffn_up_exps", "feed_forward.experts.*.up_proj"},
    {"ffn_down_exps", "feed_forward.experts.*.down_proj"},
});
constexpr auto kMixers = std::to_array<Renaming>({
    {"attn_q", "mixer.q_proj"},
    {"attn_k", "mixer.k_proj"},
    {"attn_v", "mixer.v_proj"},
    {"attn_output", "mixer.o_proj"},
    {"ffn_up", "mixer.up_proj"},
    {"ffn_down", "mixer.down_proj"},
});
constexpr auto kNemotronH = both(kMamba2, kMixers);
constexpr auto kNemotronExperts = std::to_array<Renaming>({
    {"ffn_gate_inp", "mixer.gate"},
    {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias"},
    {"ffn_up_exps", "mixer.experts.*.up_proj"},
    {"ffn_down_exps", "mixer.experts.*.down_proj"},
    {"ffn_up_shexp", "mixer.shared_experts.up_proj"},
    {"ffn_down_shexp", "mixer.shared_experts.down_proj"},
    {"ffn_latent_down", "mixer.fc1_latent_proj"},
    {"ffn_latent_up", "mixer.fc2_latent_proj"},
});
constexpr auto kNemotronHMoe = both(kNemotronH, kNemotronExperts);
constexpr auto kQwen35 = both(kDeltaNet, kRates);
constexpr auto kQwen35Moe = both(kQwen35, kQwen2Moe);
constexpr auto kQwen3Next = both(both(kDeltaNet, kFusedInputs), kQwen2Moe);

// Newer files have the rows of kv_b_proj that give keys, turned, and those that give values.
constexpr auto kLatent = std::to_array<Renaming>({
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_k_b", "self_attn.k_b_proj"},
    {"attn_v_b", "self_attn.v_b_proj"},
});
constexpr auto kKimiLinearOwn = std::to_array<Renaming>({
    {"ssm_conv1d_q", "self_attn.q_conv1d"},
    {"ssm_conv1d_k", "self_attn.k_conv1d"},
    {"ssm_conv1d_v", "self_attn.v_conv1d"},
    {"ssm_f_a", "self_attn.f_a_proj"},
    {"ssm_f_b", "self_attn.f_b_proj"},
    {"ssm_a", "self_attn.A"},
    {"ssm_a", "self_attn.A_log"},
    {"ssm_dt.bias", "self_attn.dt_bias"},
    {"ssm_beta", "self_attn.b_proj"},
    {"ssm_g_a", "self_attn.g_a_proj"},
    {"ssm_g_b", "self_attn.g_b_proj"},
    {"ssm_norm", "self_attn.o_norm"},
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
    {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.*.w2"},
    {"ffn_gate_shexp", "block_sparse_moe.shared_experts.gate_proj"},
    {"ffn_up_shexp", "block_sparse_moe.shared_experts.up_proj"},
    {"ffn_down_shexp", "block_sparse_moe.shared_experts.down_proj"},
});
constexpr auto kKimiLinear = both(kLatent, kKimiLinearOwn);
constexpr auto kLlama4 = std::to_array<Renaming>({
    {"ffn_gate", "feed_forward.gate_proj"},
    {"ffn_up", "feed_forward.up_proj"},
    {"ffn_down", "feed_forward.down_proj"},
    {"ffn_gate_inp", "feed_forward.router"},
    {"ffn_gate_exps", "feed_forward.experts.*.gate_proj"},
    {"ffn_up_exps", "feed_forward.experts.*.up_proj"},
    {"ffn_down_exps", "feed_forward.experts.*.down_proj"},
    {"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"},
    {"ffn_up_shexp", "feed_forward.shared_expert.up_proj"},
    {"ffn_down_shexp", "feed_forward.shared_expert.down_proj"},
});
constexpr auto kSharedOfSeveral = std::to_array<Renaming>({
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
});
constexpr auto kSharedExperts = both(kMoe, kSharedOfSeveral);
constexpr auto kCorrection =
    std::to_array<Renaming>({{"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"}});
constexpr auto kStatics =
    std::to_array<Renaming>({{"exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias"}});
constexpr auto kCorrected = both(kCorrection, kSharedExperts);
constexpr auto kExaoneCorrection =
    std::to_array<Renaming>({{"exp_probs_b.bias", "mlp.e_score_correction_bias"}});
constexpr auto kExaoneMoe = both(kExaoneCorrection, kSharedExperts);
constexpr auto kDeepseek = both(kLatent, kCorrected);
constexpr auto kGlm4Moe = both(kSeedOss, kCorrected);
constexpr auto kLingAttention = std::to_array<Renaming>({
    {"attn_qkv", "attention.query_key_value"},
    {"attn_output", "attention.dense"},
    {"attn_q_norm", "attention.query_layernorm"},
    {"attn_k_norm", "attention.key_layernorm"},
    {"exp_probs_b.bias", "mlp.gate.expert_bias"},
});
constexpr auto kLing = both(kLingAttention, kSharedExperts);
constexpr auto kAfmoeOwn = std::to_array<Renaming>({
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_mlp_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
    {"attn_gate", "self_attn.gate_proj"},
    {"ffn_gate_inp", "mlp.router.gate"},
    {"exp_probs_b.bias", "mlp.expert_bias"},
});
constexpr auto kLagunaOwn = std::to_array<Renaming>({
    {"attn_gate", "self_attn.g_proj"},
    {"exp_probs_b.bias", "mlp.experts.e_score_correction_bias"},
});
constexpr auto kLaguna = both(both(kLagunaOwn, kMoe), kSharedExpert);
// The correction has nothing behind its name.
constexpr auto kHyV3Own = std::to_array<Renaming>({
    {"exp_probs_b", "mlp.expert_bias"},
    {"exp_probs_b.bias", "mlp.expert_bias"},
    {"ffn_gate_inp", "mlp.router.gate"},
});
constexpr auto kHyV3 = both(both(kHyV3Own, kExpertMatrices), kSharedMatrices);
// With experts.
constexpr Renaming kGraniteSwa[] = {
    {"attn_sinks.weight", "self_attn.sinks"},
    {"ffn_gate_inp", "block_sparse_moe.router"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.gate_proj"},
    {"ffn_up_exps", "block_sparse_moe.experts.*.up_proj"},
    {"ffn_down_exps", "block_sparse_moe.experts.*.down_proj"},
};
constexpr auto kAfmoe = both(kAfmoeOwn, kSharedExperts);
constexpr auto kErnieMoe = both(kStatics, kSharedExperts);

constexpr auto kLfm2 = std::to_array<Renaming>({
    {"attn_norm", "operator_norm"},
    {"ffn_norm", "ffn_norm"},
    {"attn_output", "self_attn.out_proj"},
    {"attn_q_norm", "self_attn.q_layernorm"},
    {"attn_k_norm", "self_attn.k_layernorm"},
    {"ffn_gate", "feed_forward.w1"},
    {"ffn_up", "feed_forward.w3"},
    {"ffn_down", "feed_forward.w2"},
    {"shortconv.conv", "conv.conv"},
    {"shortconv.in_proj", "conv.in_proj"},
    {"shortconv.out_proj", "conv.out_proj"},
});
constexpr auto kLfm2Experts = std::to_array<Renaming>({
    {"ffn_gate_inp", "feed_forward.gate"},
    {"exp_probs_b.bias", "feed_forward.expert_bias"},
    {"ffn_gate_exps", "feed_forward.experts.*.w1"},
    {"ffn_up_exps", "feed_forward.experts.*.w3"},
    {"ffn_down_exps", "feed_forward.experts.*.w2"},
});
constexpr auto kLfm2Moe = both(kLfm2, kLfm2Experts);
constexpr Renaming kLfm2Model[] = {{"token_embd_norm.weight", "model.embedding_norm.weight"},
                                   {"output_norm.weight", "model.embedding_norm.weight"}};

// Some names of gpt-oss are whole, with what follows the last point.
constexpr Renaming kGptOss[] = {{"attn_sinks.weight", "self_attn.sinks"},
                                {"post_attention_norm", "post_attention_layernorm"},
                                {"ffn_gate_inp", "mlp.router"},
                                {"ffn_gate_exps.bias", "mlp.experts.gate_proj.bias"},
                                {"ffn_up_exps.bias", "mlp.experts.up_proj.bias"},
                                {"ffn_down_exps.bias", "mlp.experts.down_proj.bias"},
                                {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                {"ffn_down_exps", "mlp.experts.*.down_proj"}};

constexpr Architecture kArchitectures[] = {
    {"llama", "llama", RotaryRows::kPairsInGguf, kMixtral},
    {"qwen2", "qwen2", RotaryRows::kHalves},
    {"qwen3", "qwen3", RotaryRows::kHalves},
    {"qwen2moe", "qwen2_moe", RotaryRows::kHalves, kQwen2Moe},
    {"qwen3moe", "qwen3_moe", RotaryRows::kHalves, kMoe},
    {"qwen2vl", "qwen2_vl_text", RotaryRows::kHalves},
    {"qwen3vl", "qwen3_vl_text", RotaryRows::kHalves},
    {"qwen3vlmoe", "qwen3_vl_moe_text", RotaryRows::kHalves, kMoe},
    {"gemma", "gemma", RotaryRows::kHalves},
    {"gemma2", "gemma2", RotaryRows::kHalves, kAroundBranches},
    {"gemma3", "gemma3_text", RotaryRows::kHalves, kAroundBranches},
    {.name = "gemma3n",
     .model_type = "gemma3n_text",
     .own_tensors = kGemma3n,
     .model_tensors = kGemma3nModel},
    {.name = "gemma4",
     .model_type = "gemma4_text",
     .own_tensors = kGemma4,
     .model_tensors = kGemma4Model,
     .keys = LayerKeys::kUnlike},
    {"chatglm", "glm", RotaryRows::kPairs, kGlm},
    {"glm4", "glm4", RotaryRows::kPairs, kGlm4},
    {"glm4moe", "glm4_moe", RotaryRows::kHalves, kGlm4Moe},
    {.name = "gpt2",
     .model_type = "gpt2",
     .rotary = RotaryRows::kNone,
     .own_tensors = kGpt2,
     .model_tensors = kGpt2Model,
     .layers = "transformer.h.",
     .has_layer_norms = true},
    {.name = "gptneox", .model_type = "gpt_neox", .own_tensors = kGptNeox, .has_layer_norms = true},
    {"gpt-oss", "gpt_oss", RotaryRows::kHalves, kGptOss},
    {"granite", "granite", RotaryRows::kPairsInGguf, kGranite},
    {.name = "granitehybrid",
     .model_type = "granitemoehybrid",
     .rotary = RotaryRows::kPairsInGguf,
     .own_tensors = kGraniteHybrid,
     .keys = LayerKeys::kSome},
    {"granitemoe", "granitemoe", RotaryRows::kPairsInGguf, kGraniteMoe},
    {"granite_swa", "granite_swa", RotaryRows::kPairsInGguf, kGraniteSwa},
    {"hunyuan-dense", "hunyuan_v1_dense", RotaryRows::kHalves, kHunyuanDense},
    {"hunyuan-moe", "hunyuan_v1_moe", RotaryRows::kHalves, kHunyuan},
    {"hy_v3", "hy_v3", RotaryRows::kHalves, kHyV3},
    {.name = "laguna", .model_type = "laguna", .own_tensors = kLaguna, .keys = LayerKeys::kQueries},
    {"mellum", "mellum", RotaryRows::kHalves, kMoe},
    {"minimax-m2", "minimax_m2", RotaryRows::kHalves, kMinimax},
    {"mistral3", "ministral3", RotaryRows::kPairsInGguf},
    {.name = "mistral4",
     .model_type = "mistral4",
     .rotary = RotaryRows::kPairs,
     .own_tensors = kDeepseek,
     .keys = LayerKeys::kLatent},
    {"afmoe", "afmoe", RotaryRows::kHalves, kAfmoe},
    {"apertus", "apertus", RotaryRows::kHalves, kApertus},
    {"arcee", "arcee", RotaryRows::kPairsInGguf},
    {"bitnet", "bitnet", RotaryRows::kHalves, kBitnet},
    {.name = "bloom",
     .model_type = "bloom",
     .rotary = RotaryRows::kNone,
     .own_tensors = kBloom,
     .model_tensors = kBloomModel,
     .has_layer_norms = true},
    {.name = "mpt",
     .model_type = "mpt",
     .rotary = RotaryRows::kNone,
     .own_tensors = kMpt,
     .has_layer_norms = true},
    {.name = "command-r",
     .model_type = "cohere",
     .rotary = RotaryRows::kPairs,
     .has_layer_norms = true},
    {.name = "cohere2",
     .model_type = "cohere2",
     .rotary = RotaryRows::kPairs,
     .has_layer_norms = true},
    {"cohere2moe", "cohere2_moe", RotaryRows::kPairs, kSharedExperts},
    {.name = "deepseek2",
     .model_type = "deepseek_v2",
     .rotary = RotaryRows::kPairs,
     .own_tensors = kDeepseek,
     .keys = LayerKeys::kLatent},
    {"bailingmoe2", "bailing_moe_v2", RotaryRows::kHalves, kLing},
    {"dots1", "dots1", RotaryRows::kHalves, kCorrected},
    {"ernie4_5", "ernie4_5", RotaryRows::kPairs},
    {"ernie4_5-moe", "ernie4_5_moe", RotaryRows::kPairs, kErnieMoe},
    {"exaone", "exaone", RotaryRows::kHalves},
    {"exaone4", "exaone4", RotaryRows::kHalves, kAfterBranches},
    {"exaone-moe", "exaone_moe", RotaryRows::kHalves, kExaoneMoe},
    {.name = "falcon", .model_type = "falcon", .own_tensors = kFalcon, .has_layer_norms = true},
    {"falcon-h1", "falcon_h1", RotaryRows::kHalves, kFalconH1, kFalconH1Model},
    {.name = "jamba",
     .model_type = "jamba",
     .rotary = RotaryRows::kNone,
     .own_tensors = kJamba,
     .model_tensors = kFalconH1Model,
     .keys = LayerKeys::kSome},
    {.name = "kimi-linear",
     .model_type = "kimi_linear",
     .own_tensors = kKimiLinear,
     .keys = LayerKeys::kSomeLatent},
    {.name = "lfm2",
     .model_type = "lfm2",
     .own_tensors = kLfm2,
     .model_tensors = kLfm2Model,
     .keys = LayerKeys::kSome},
    {.name = "lfm2moe",
     .model_type = "lfm2_moe",
     .own_tensors = kLfm2Moe,
     .model_tensors = kLfm2Model,
     .keys = LayerKeys::kSome},
    {"internlm2", "llama", RotaryRows::kPairsInGguf},
    {.name = "llama4",
     .model_type = "llama4_text",
     .rotary = RotaryRows::kPairs,
     .own_tensors = kLlama4},
    {.name = "mamba", .model_type = "mamba", .own_tensors = kMamba1, .keys = LayerKeys::kNone},
    {.name = "mamba2", .model_type = "mamba2", .own_tensors = kMamba2, .keys = LayerKeys::kNone},
    {"minicpm", "minicpm", RotaryRows::kPairsInGguf},
    {.name = "minicpm3",
     .model_type = "minicpm3",
     .own_tensors = kLatent,
     .keys = LayerKeys::kLatent},
    {.name = "olmo",
     .model_type = "olmo",
     .rotary = RotaryRows::kPairsInGguf,
     .has_layer_norms = true},
    {"olmo2", "olmo2", RotaryRows::kHalves, kAfterBranches},
    {"olmoe", "olmoe", RotaryRows::kHalves, kMoe},
    {.name = "nemotron", .model_type = "nemotron", .has_layer_norms = true},
    {.name = "jais2", .model_type = "jais2", .has_layer_norms = true},
    {.name = "nemotron_h",
     .model_type = "nemotron_h",
     .own_tensors = kNemotronH,
     .keys = LayerKeys::kSingle},
    {.name = "nemotron_h_moe",
     .model_type = "nemotron_h",
     .own_tensors = kNemotronHMoe,
     .keys = LayerKeys::kSingle},
    {.name = "phi2",
     .model_type = "phi",
     .own_tensors = kPhi2,
     .model_tensors = kPhi2Model,
     .has_layer_norms = true},
    {"phi3", "phi3", RotaryRows::kHalves, kFused},
    {.name = "phimoe",
     .model_type = "phimoe",
     .own_tensors = kMixtral,
     .model_tensors = kOutputBias},
    {"qwen35", "qwen3_5_text", RotaryRows::kHalves, kQwen35},
    {"qwen35moe", "qwen3_5_moe_text", RotaryRows::kHalves, kQwen35Moe},
    {"qwen3next", "qwen3_next", RotaryRows::kHalves, kQwen3Next},
    {"seed_oss", "seed_oss", RotaryRows::kHalves, kSeedOss},
    {"smollm3", "smollm3", RotaryRows::kPairsInGguf},
    {.name = "stablelm",
     .model_type = "stablelm",
     .own_tensors = kStablelm,
     .has_layer_norms = true},
    {.name = "starcoder",
     .model_type = "gpt_bigcode",
     .rotary = RotaryRows::kNone,
     .own_tensors = kGpt2,
     .model_tensors = kStarcoderModel,
     .has_layer_norms = true},
    {.name = "starcoder2",
     .model_type = "starcoder2",
     .own_tensors = kStarcoder2,
     .has_layer_norms = true},
};

// Models that are called otherwise in Hugging Face, and likewise in GGUF.
constexpr std::pair<std::string_view, std::string_view> kAlike[] = {
    {"falcon_mamba", "mamba"},
    {"internlm3", "llama"},
    {"iquestcoder", "llama"},
    {"ministral", "llama"},
    {"mistral", "llama"},
    {"mixtral", "llama"},
    {"olmo3", "olmo2"},
    {"gemma4_unified_text", "gemma4_text"},
    {"qwen2_5_vl_text", "qwen2_vl_text"},
    {"granitemoeshared", "granitemoe"},
    {"granitemoe_swa", "granite_swa"},
    {"deepseek_v3", "deepseek_v2"},
    {"youtu", "deepseek_v2"},
    {"solar_open", "glm4_moe"},
    {"glm4_moe_lite", "deepseek_v2"}};

// The model_type of an Architecture that models of this one are of.
std::string_view type_in_gguf(std::string_view model_type) {
  for (const auto& [type, common] : kAlike) {
    if (type == model_type) return common;
  }
  return model_type;
}

constexpr std::string_view kAllExperts = ".experts.*.";

bool may_have_experts(const Architecture& architecture) {
  return std::any_of(architecture.own_tensors.begin(), architecture.own_tensors.end(),
                     [](const Renaming& renaming) {
                       // They may stand first.
                       return str(".", renaming.hugging_face).find(kAllExperts) !=
                              std::string::npos;
                     });
}

}  // namespace

std::vector<std::string_view> gguf_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) names.push_back(architecture.name);
  return names;
}

const Architecture* architecture_or_null(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
  }
  return nullptr;
}

void require_experts_known(const Architecture& architecture) {
  if (may_have_experts(architecture)) return;
  std::string known;
  for (const Architecture& other : kArchitectures) {
    if (may_have_experts(other)) known += str(known.empty() ? "" : ", ", other.name);
  }
  fail(ErrorKind::kUnsupported, "experts (a mixture of experts) are not supported in ",
       architecture.name, ", only in ", known);
}

const Architecture& find_architecture(std::string_view name) {
  if (const Architecture* found = architecture_or_null(name)) return *found;
  const std::vector<std::string_view> names = gguf_architectures();
  fail(ErrorKind::kUnsupported, "the architecture ", quoted(name),
       " is not supported; supported are ",
       join(std::vector<std::string>(names.begin(), names.end()), ", "));
}

bool gguf_reorders_rotary_rows(std::string_view name) {
  const Architecture* found = architecture_or_null(name);
  return found != nullptr && found->rotary == RotaryRows::kPairsInGguf;
}

bool rotates_pairs(std::string_view model_type) {
  if (model_type == "gptj" || model_type == "helium") return true;  // which have no files
  model_type = type_in_gguf(model_type);
  return std::any_of(
      std::begin(kArchitectures), std::end(kArchitectures), [&](const Architecture& architecture) {
        return architecture.model_type == model_type && architecture.rotary == RotaryRows::kPairs;
      });
}

namespace {

// Of Granite 4.0: with attention in all layers, which then rotates, models are Granite's.
std::string hybrid_architecture(const Json& config) {
  const bool from_gguf = get_bool(config, "linear_inputs_apart", false);
  const bool rotates = get_string(config, "position_embedding_type", "") == "rope";
  const std::vector<bool> has_mamba = mamba_layers(config);
  const bool any = std::find(has_mamba.begin(), has_mamba.end(), true) != has_mamba.end();
  if (from_gguf || !rotates || any) return "granitehybrid";
  return expert_count(config) > 0 ? "granitemoe" : "granite";
}

}  // namespace

std::string gguf_architecture(const Json& config) {
  const std::string type = get_string(config, "model_type");
  if (type == "granitemoehybrid" && find_value(config, "layer_types") != nullptr) {
    return hybrid_architecture(config);
  }
  if (type == "nemotron_h" && expert_count(config) > 0) return "nemotron_h_moe";
  std::string known;
  for (const auto& [alike, common] : kAlike) known += str(known.empty() ? "" : ", ", alike);
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.model_type == type_in_gguf(type)) return std::string(architecture.name);
    known += str(", ", architecture.model_type);
  }
  fail(ErrorKind::kUnsupported, "model_type ", quoted(type),
       " has no architecture of GGUF that Lumen knows; known are ", known);
}

}  // namespace lumen::io
