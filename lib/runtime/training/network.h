// What a recipe trains: a network, how its loss is built from a batch, and its config.json.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lib/io/json.h"
#include "lib/nn/parameters.h"
#include "models/model.h"

namespace lumen::runtime {

struct ModelRecipe;

// The fields of a data::Batch as graph inputs.
using Fields = std::map<std::string, graph::Tensor>;

// A network on trainable parameters. Building graphs does not change it.
class Network {
 public:
  virtual ~Network() = default;

  // Σ over the targets that count of their losses, []; to be divided by their number.
  virtual graph::Tensor loss_sum(const Fields& fields) const = 0;
  // What evaluation looks at besides the loss: class logits [samples, classes]; undefined if there
  // are no classes.
  virtual graph::Tensor class_logits(const Fields& fields) const = 0;

  // config.json of the result.
  virtual io::Json config() const = 0;
  // One line: "llama, 4 layers of 128, vocabulary 512".
  virtual std::string description() const = 0;
  // The model, if it is one that continues text; else null.
  virtual const models::CausalLm* language_model() const { return nullptr; }
};

// What of the data decides the shape of a network.
struct DataShape {
  int64_t vocab = 0;    // of the tokenizer
  int64_t classes = 0;  // 0: the label is a number
  Shape features;       // of one sample
};

struct NetworkOptions {
  double label_smoothing = 0;  // in training; losses of evaluations are those of the targets
  bool recompute = false;      // activations of layers, instead of keeping them
  // Weight of nn::load_balancing_loss in the training of a mixture of experts. None: as
  // transformers has it, the config's key of this name, or 0 unless it sets output_router_logits.
  std::optional<double> router_aux_loss_coef = {};
};

// config.json of the network that [model] describes by its type. Throws Error(kUsage) if the data
// do not fit it.
io::Json network_config(const ModelRecipe& model, const DataShape& data);

// The network of a config.json, on `parameters`, which it asks for its own. Throws what model
// constructors throw.
std::unique_ptr<Network> make_network(const io::Json& config, const nn::Parameters& parameters,
                                      const NetworkOptions& options);

}  // namespace lumen::runtime
