// The parameter tree: constructing a module is loading it.
//
// A module's constructor asks for its parameters by name and shape; the path of the tree is the
// parameter's name in the checkpoint. The same constructor reads a file, initialises at random, or
// makes what an optimizer trains.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/strings.h"
#include "lib/graph/tensor.h"
#include "lib/nn/init.h"
#include "lib/nn/low_rank.h"
#include "lib/nn/low_rank_start.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::nn {

// New memory holding `array` as float32, or as it is if it holds integers.
Array float32_copy(const Array& array);
// What a file of type `dtype` (a float or quantised type) is to hold for `array`: float32 matrices
// in that type, or in float16 if their rows do not fill its blocks; vectors, which are small and
// sensitive, and other types as they are.
Array stored_as(const Array& array, DType dtype);

// What low-rank additions (low_rank.h) the layers of a model get.
struct LoraOptions {
  int64_t rank = 0;
  double scale = 1;                             // lora_scale
  double dropout = 0;                           // on x while training
  bool dora = false;                            // new additions have magnitudes
  LowRankInit init = LowRankInit::kUniform;     // of new additions
  std::optional<int64_t> init_iterations = {};  // as low_rank_start takes them
  // Which biases are trained with new additions: those of their layers, or all of is_bias.
  enum class Biases { kNone, kOfAdditions, kAll };
  Biases biases = Biases::kNone;
  // Of new additions; those of an adapter are where it has tensors.
  // Ends of layer names: "q_proj", "shared_expert.up_proj"; of experts what PEFT calls the
  // parameter of all: "experts.down_proj". None: all linear layers but the output ("lm_head"), the
  // routers of experts ("gate", "router") and the experts.
  std::vector<std::string> targets = {};
  std::vector<std::string> exclude = {};  // such ends, too: these layers get none
  int64_t first_layer = 0;                // only in layers with at least this number
  struct Own {
    int64_t rank = 0;
    double scale = 1;
  };
  // Layers with a rank and a scale of their own: the first pattern (* and ?) on their path counts.
  struct Group {
    std::string match;
    Own own;
  };
  std::vector<Group> groups = {};
  std::map<std::string, Own> own = {};  // of an adapter, by the layer's place ("….q_proj.")

  // The rank and scale of the addition to the layer of this place.
  Own of(const std::string& place) const;
};

// The number of the layer that "model.layers.3.mlp." or "transformer.h.3.attn." lies in: the first
// part that is one; 0 outside of layers.
int64_t layer_number(std::string_view place);

// Whether the parameter `name` is of a module whose path ends in one of these names: of "norm" or
// "model.norm" "model.norm.weight" is.
bool is_of_module(std::string_view name, const std::vector<std::string>& modules);

// Whether the parameter `name` is the bias of a layer or a norm, but of experts.
bool is_bias(std::string_view name);

// A place in the tree ("model.layers.0."). Cheap to copy; all copies share what was asked for. Not
// thread-safe.
class Parameters {
 public:
  // Parameters of a checkpoint, as constants. The arrays are shared, not copied.
  static Parameters from_checkpoint(const NamedArrays& arrays);
  // Constants initialised as their modules ask. `dtype` is that of matrices; vectors are float32.
  static Parameters random(uint64_t seed, DType dtype = DType::kF32);
  // Parameters to be trained: float32 states that require gradients, in memory of their own,
  // initialised as their modules ask. The values of a name depend on it and on the seed only, not
  // on what else the model has.
  static Parameters trainable(uint64_t seed);
  // The same with the values of a checkpoint, copied and widened to float32.
  static Parameters trainable(const NamedArrays& arrays);

  // The branch `name` of this place: Parameters("model") / "layers" / "0".
  Parameters operator/(const std::string& name) const;
  // This place, below which random matrices are drawn from normal(deviation) and random vectors
  // (biases) start as zeros, whatever modules ask for: the initialisation of language models
  // (Hugging Face's `initializer_range`).
  Parameters with_normal_weights(double deviation) const;
  // This place, below which no layer gets a new addition.
  Parameters without_additions() const;

  // The same parameters, with additions to the linear layers that `options` name: trainable ones
  // (B = 0: the model is unchanged at first), or those of `adapter`, whose tensors are named like
  // the layers: "….q_proj.lora_A.weight". What is missing or unused there is reported by check(),
  // which calls the adapter's file `place`.
  // New ones begin with what the adapter `start` of the file `place` has of them. Of those that
  // start as a part of the weight the frozen A₀ and B₀ are there too, "….lora_A.start" and
  // "….lora_B.start".
  Parameters with_lora(const LoraOptions& options, uint64_t seed, const NamedArrays& start = {},
                       const std::string& place = "") const;
  Parameters with_lora(const LoraOptions& options, const NamedArrays& adapter,
                       const std::string& place) const;
  // The same parameters of a checkpoint, of which those of these modules (is_of_module) are trained
  // as those of trainable().
  Parameters with_trained(const std::vector<std::string>& modules) const;
  // All parameters with the additions worked into the matrices, under the names of the model
  // without additions. What has an addition or is quantised becomes float32.
  NamedArrays merged() const;
  // Whether the parameter `name` has an addition, and what merged() gives for it.
  bool has_addition(const std::string& name) const;
  Array merged(const std::string& name) const;
  // The addition to the layer of this place, which has this weight; none if it has none. `names`
  // are what LoraOptions::targets may call it; none: the ends of its own.
  std::optional<LowRank> low_rank(const Tensor& weight, WeightOrder order = WeightOrder::kOutIn,
                                  const std::vector<std::string>& names = {}) const;
  // Those names of all layers that asked for an addition, with or without one, or the last parts of
  // their own: what LoraOptions::targets may name.
  const std::set<std::string>& linear_layers() const;
  // Those of LoraOptions::targets and exclude that named a layer; without targets those names of
  // all layers that have one of the new additions.
  const std::set<std::string>& named_targets() const;

  // The parameter `name`, which must have this shape. What is missing or misshapen is collected
  // and reported by check(), so that one message names it all. Asked for again it is the same one.
  Tensor get(const std::string& name, const Shape& shape,
             const Init& init = Init::normal(0.02)) const;
  // The same, as float32 whatever its stored type (norms, biases: small).
  Tensor get_f32(const std::string& name, const Shape& shape,
                 const Init& init = Init::normal(0.02)) const;
  // State that is saved and restored with the parameters but has no gradient: running statistics.
  // float32, or an integer type. Of trainable parameters a state that operations may overwrite,
  // otherwise a constant.
  Tensor buffer(const std::string& name, const Shape& shape, const Init& init,
                DType dtype = DType::kF32) const;
  // Whether the checkpoint has it (without a checkpoint: no).
  bool has(const std::string& name) const;
  // check() does not return `name` and what is below: a checkpoint may have it, and it is not used.
  void leave_out(const std::string& name) const;

  // Throws Error(kMalformed) listing up to ten missing and misshapen parameters with expected and
  // found shapes, and names asked for in two shapes; Error(kMismatch) if only tensors of the
  // adapter have other shapes. Returns the names in the checkpoint and in the adapter that nobody
  // asked for.
  std::vector<std::string> check() const;
  // What with_lora calls the adapter's file, if the tensor `name` is the adapter's; else "".
  std::string adapter_of(const std::string& name) const;

  // Everything handed out so far in the whole tree, by full name: parameters and buffers.
  const std::map<std::string, Tensor>& named() const;
  // The parameters alone, by name. Frozen ones do not require gradients.
  std::vector<std::pair<std::string, Tensor>> named_parameters() const;

  // Parameters whose full names match (* and ?) no longer require gradients, in graphs recorded
  // from now on; also those not yet asked for. Returns how many matched so far.
  size_t freeze(const std::string& pattern) const;

  // The values of named(), sharing their memory: they change as training goes on.
  NamedArrays state_dict() const;
  // Copies `values` into the trainable parameters and buffers, widening other float types. Throws
  // Error(kMismatch), having changed nothing, with one message that names everything missing,
  // unexpected, misshapen and of a wrong type.
  void load_state_dict(const NamedArrays& values) const;

 private:
  struct Tree;
  explicit Parameters(std::shared_ptr<Tree> tree) : tree_(std::move(tree)) {}
  bool is_trained(const std::string& full) const;
  bool is_trained_bias(const std::string& full) const;
  Array find(const std::string& full, const Shape& shape, const Init& init, DType dtype) const;
  // Whether the layer of this place gets a new addition; notes what names it among targets and
  // exclude.
  bool is_chosen(const std::vector<std::string>& names) const;
  // The part `name` of an adapter's addition.
  Tensor given_part(const std::string& name, const Shape& shape) const;
  // A new addition to a layer with this weight.
  LowRank new_addition(const Tensor& weight, WeightOrder order) const;
  Tensor trained_part(const std::string& name, Array start) const;
  void note_misfit(const std::string& full, const Shape& found, const Shape& expected) const;
  // Two parts of one name: whichever came first would be neither trained nor saved.
  void note_second_shape(const std::string& full, const Shape& first, const Shape& second) const;

  std::shared_ptr<Tree> tree_;
  std::string prefix_;
  std::optional<double> normal_deviation_;
  bool takes_additions_ = true;
};

}  // namespace lumen::nn
