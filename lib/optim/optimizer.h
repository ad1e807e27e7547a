// Optimizers: gradients → new values of the parameters, in place.
//
// Formulas are PyTorch's (torch.optim); Lion, which it lacks, is the paper's. Everything is float32
// with the same bits for any number of threads; so is Muon's iteration, which PyTorch's rounds to
// bfloat16 (muon.cc says how much that changes).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/pool.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::optim {

// A parameter by its name in the checkpoint; `value` is float32 and shared with the model.
struct NamedParameter {
  std::string name;
  Array value;
};

// Parameters that are treated differently. The first group that matches a name counts.
struct ParameterGroup {
  std::string match{};                   // pattern on the name, * and ?
  double lr_factor = 1;                  // multiplies the learning rate
  std::optional<double> weight_decay{};  // absent: as without the group
};

// Keys as in recipes, which have those of them that are most used. An option that the type does not
// have is an error, so that nothing is silently ignored; absent ones have PyTorch's default.
struct OptimizerConfig {
  std::string type = "adamw";  // sgd adam adamw rmsprop adagrad lion adafactor muon
  bool maximize = false;       // ascends: the gradients are taken with the other sign
  // L2 penalty of sgd, adam, rmsprop and adagrad; decoupled from the gradient in the others.
  // PyTorch's default of adamw is 0.01, of muon 0.1.
  double weight_decay = 0;
  std::vector<double> betas{};        // two. adam, adamw, muon: 0.9 0.999; lion: 0.9 0.99
  std::optional<double> eps{};        // adam, adamw, muon, rmsprop: 1e-8; adagrad: 1e-10;
                                      // adafactor: 1.2e-7, the least root of a second moment
  std::optional<double> momentum{};   // sgd, rmsprop: 0; muon: 0.95
  std::optional<double> dampening{};  // sgd: 0
  std::optional<bool> nesterov{};     // sgd: false; muon: true
  std::optional<bool> amsgrad{};      // adam, adamw: false
  std::optional<double> alpha{};      // rmsprop: 0.99
  std::optional<bool> centered{};     // rmsprop: false
  std::optional<double> lr_decay{};   // adagrad: 0
  std::optional<double> initial_accumulator{};   // adagrad: 0
  std::optional<double> beta2_decay{};           // adafactor: −0.8
  std::optional<double> clip_threshold{};        // adafactor: 1, most root mean square of an update
  std::optional<double> scale_eps{};             // adafactor: 1e-3, least scale of a parameter
  std::optional<int64_t> newton_schulz_steps{};  // muon: 5
  // muon: "original", √max(1, rows/columns), "spectral_unclamped", √(rows/columns), or
  // "match_rms_adamw", 0.2 √max(rows, columns), with which a learning rate of AdamW fits.
  std::optional<std::string> adjust_lr{};
  // muon: matrices that AdamW updates like vectors, since they are tables and not maps. Absent:
  // names with "embed", "emb.", "wte", "wpe" or "lm_head".
  std::optional<std::vector<std::string>> adamw_for{};

  std::vector<std::string> no_decay{};  // patterns on names; "1d": all vectors (biases, norms)
  std::vector<ParameterGroup> groups{};
};

// Not thread-safe.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update with `gradients`, in the order of the parameters, each multiplied by
  // `gradient_scale` first (clipping, unscaling). They must be finite: the caller checks. Throws
  // Error(kMalformed), having changed nothing, unless there is one of float32 and of its size for
  // each parameter.
  virtual void step(ThreadPool& pool, std::span<const Array> gradients, double lr,
                    double gradient_scale = 1) = 0;

  // "step" (int64 []) and what is kept for each parameter ("NAME.exp_avg", …), which shares memory
  // with the optimizer.
  virtual NamedArrays state() const = 0;
  // Copies `state` in. Throws Error(kMismatch), having changed nothing, if it is not the state of
  // such an optimizer of such parameters.
  virtual void load_state(const NamedArrays& state) = 0;
};

// Throws Error(kMalformed) for an unknown type, naming the nearest, for an option that the type
// does not have, values out of range, a group that matches no parameter, and parameters that are
// not float32, have no value or share a name.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                          std::vector<NamedParameter> parameters);

// The first of config.groups that is of none of the parameters, as none matches it or earlier
// groups have them all.
std::optional<size_t> unused_group(const OptimizerConfig& config,
                                   const std::vector<NamedParameter>& parameters);

// The first of config.no_decay but "1d" that matches none of the parameters.
std::optional<size_t> unused_no_decay(const OptimizerConfig& config,
                                      const std::vector<NamedParameter>& parameters);

// All types, for messages and tests.
std::vector<std::string> optimizer_types();

}  // namespace lumen::optim
