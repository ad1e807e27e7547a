// What files of Gemma 1 to 3 say, the later ones of windows in most layers and of caps. Keys:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf_families.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

constexpr int64_t kGemma2Period = 2, kGemma3Period = 6;
constexpr int64_t kGemma2Window = 4096;
constexpr double kGemmaLocalTheta = 10000;

// The caps of Gemma 2.
constexpr Usual kCaps[] = {{"attn_logit_softcapping", 50}, {"final_logit_softcapping", 30}};
constexpr double kLeastCap = 1e-3, kMostCap = 1e6;

// What the products of queries and keys of Gemma 2 and 3 are divided by the root of: of all sizes
// but the largest head_dim.
int64_t gemma_query_scalar(const Json& config) {
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const bool largest = layers == (get_string(config, "model_type") == "gemma2" ? 46 : 62);
  return largest ? get_int(config, "hidden_size", 1, limits::kDim) / heads
                 : get_int(config, "head_dim", 1, limits::kDim);
}

void require_query_scalar(const Json& config) {
  const auto expected = static_cast<double>(gemma_query_scalar(config));
  const double scalar = get_number(config, "query_pre_attn_scalar", 1e-6, 1e9, expected);
  if (scalar != expected) {
    fail(ErrorKind::kUnsupported, "query_pre_attn_scalar ", scalar,
         " cannot be written as GGUF, where it is ", expected);
  }
}

}  // namespace

void read_gemma(const ArchitectureKeys&, Json& config) {
  config["rms_norm_offset"] = 0;  // the files have the sums
  config["hidden_act"] = "gelu_pytorch_tanh";
}

void read_gemma2(const ArchitectureKeys& keys, Json& config) {
  read_gemma(keys, config);
  config["query_pre_attn_scalar"] = gemma_query_scalar(config);
  for (const Usual& cap : kCaps) {
    config[cap.key] = keys.number(cap.key, cap.usual);
    get_number(config, cap.key, kLeastCap, kMostCap);
  }
  if (!read_windows(keys, kGemma2Period, config, kGemma2Window)) config["sliding_window"] = nullptr;
}

void write_gemma2(const Json& config, const KeyWriter& keys) {
  if (find_value(config, "sliding_window") == nullptr) {
    cannot_write("gemma2", "sliding_window null", str("take it for ", kGemma2Window));
  }
  write_windows(config, keys, kGemma2Period);
  require_query_scalar(config);
  for (const Usual& cap : kCaps) {
    if (find_value(config, cap.key) == nullptr) {
      fail(ErrorKind::kUnsupported, cap.key,
           " null cannot be written as GGUF for gemma2, where it is ", cap.usual,
           " if there is no key");
    }
    keys.number(cap.key, get_number(config, cap.key, kLeastCap, kMostCap));
  }
}

void read_gemma3(const ArchitectureKeys& keys, Json& config) {
  read_gemma(keys, config);
  config["query_pre_attn_scalar"] = gemma_query_scalar(config);
  config[kLocalBase] = keys.number(kLocalTheta, kGemmaLocalTheta);
  read_windows(keys, kGemma3Period, config);
}

void write_gemma3(const Json& config, const KeyWriter& keys) {
  write_windows(config, keys, kGemma3Period);
  require_query_scalar(config);
  for (const Usual& cap : kCaps) {
    if (find_value(config, cap.key) == nullptr) continue;
    fail(ErrorKind::kUnsupported, cap.key, " cannot be written as GGUF for gemma3");
  }
  keys.number(kLocalTheta, get_number(config, kLocalBase, 1e-3, 1e12, kGemmaLocalTheta));
}

}  // namespace lumen::io
