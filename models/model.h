// The model zoo: what every architecture provides, and the registry.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lib/io/json.h"
#include "lib/nn/decoder.h"
#include "lib/nn/parameters.h"

namespace lumen::models {

using graph::Tensor;

// What training asks of a forward pass besides the result.
struct Training {
  // Several documents in one row: what a token may see and where it stands.
  Tensor segments;   // int32 [batch, tokens]: attention stays within equal numbers; undefined: one
  Tensor positions;  // int32 [batch, tokens]: from 0 in each document; undefined: 0, 1, 2, …
  bool recompute = false;  // keep only the layers' inputs for the backward pass
  // Where the logits of the routers of all sparse layers go, [batch, tokens, experts] each; null:
  // nowhere.
  std::vector<Tensor>* router_logits = nullptr;
};

// layer(x), of which only x is kept for the backward pass if `recompute`.
Tensor run_layer(bool recompute, const Tensor& x, std::function<Tensor(const Tensor&)> layer);

// A causal language model: builds graphs, owns nothing but its parameters.
class CausalLm {
 public:
  virtual ~CausalLm() = default;

  // What a KV cache for `batch` sequences of `context` positions must hold.
  virtual nn::KvCacheShape cache_shape(int64_t batch, int64_t context) const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t max_positions() const = 0;
  // Says that positions will go up to `context`, before graphs are built: some models rotate
  // otherwise in long contexts than in short ones. Whether this is such a context.
  virtual bool set_context(int64_t /*context*/) { return false; }
  // Whether a cache holds every position, so that a text can be continued from any of them; false
  // for recurrent models, which can go on from the last only.
  virtual bool keeps_positions() const { return true; }
  // Whether a cache can hold several texts.
  virtual bool keeps_several() const { return keeps_positions(); }

  // Token ids int32 [batch, tokens], the first at `position` (int32 [1], or of each row [batch]) →
  // the last layer's output [batch, tokens, hidden]. With a cache, keys and values are appended to
  // it and earlier positions are seen; without, the position must be [1] and 0. A model that does
  // not keep several texts takes a batch of 1 with a cache. `training` goes without a cache.
  virtual Tensor hidden(const Tensor& tokens, const Tensor& position, nn::KvCache* cache,
                        const Training& training = {}) const = 0;

  // The last layer's output for the last `count` tokens alone, [batch, count, hidden], with a cache
  // that all are appended to as by hidden(). What only the others' output needs may be left out.
  virtual Tensor last_hidden(const Tensor& tokens, const Tensor& position, nn::KvCache& cache,
                             int64_t count) const {
    return nn::last_tokens(hidden(tokens, position, &cache), count);
  }

  // The final norm: [..., hidden] → [..., hidden].
  virtual Tensor normalized(const Tensor& hidden) const = 0;
  // The output head after it: weight [vocab, hidden] and, if it has one, bias [vocab].
  virtual const nn::Linear& head() const = 0;

  // How many experts a token goes through in each sparse layer; 0: there is no such layer.
  virtual int64_t used_experts() const { return 0; }

  // What limits the head's numbers before they are logits (ops::soft_cap); 0: nothing.
  virtual double logit_cap() const { return 0; }

  // Final norm, output head and cap: [..., hidden] → logits [..., vocab].
  Tensor logits(const Tensor& hidden) const {
    return ops::soft_cap(head()(normalized(hidden)), logit_cap());
  }
};

// An architecture: one per file of this folder, listed in models/meson.build.
struct ModelDef {
  std::string_view name;
  // The model_type values of config.json that it loads.
  std::span<const std::string_view> model_types;
  // Builds the model from its config and parameters. Throws what nn's constructors throw; what is
  // missing is reported by check_tensors, which the caller runs.
  std::unique_ptr<CausalLm> (*make)(const io::Json& config, const nn::Parameters& parameters);
  // Configs small enough to test on the reference backend, one per variant worth testing.
  std::vector<io::Json> (*tiny_configs)();
};

// All architectures; generated from the list in models/meson.build.
std::span<const ModelDef* const> model_list();

// Throws Error unless the checkpoint of `parameters` is what the models made from them asked for:
// kMalformed as Parameters::check, kUnsupported if it has tensors that nobody asked for, other than
// those that carry nothing a model needs.
void check_tensors(const nn::Parameters& parameters);

// The architecture of config["model_type"]. Throws Error(kUnsupported) naming the nearest and all
// supported ones.
const ModelDef& find_model_def(const io::Json& config);

}  // namespace lumen::models
