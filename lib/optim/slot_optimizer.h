// What all optimizers share: parameters with their settings and state. Internal to this room.
#pragma once

#include <string>
#include <vector>

#include "lib/optim/optimizer.h"

namespace lumen::optim {

class SlotOptimizer : public Optimizer {
 public:
  // What `update` does at once.
  enum class Unit {
    kParameter,  // all of a parameter, with all threads
    kElements,   // any elements, as they do not depend on others, with one
  };

  SlotOptimizer(const OptimizerConfig& config, std::vector<NamedParameter> parameters, Unit unit);

  void step(ThreadPool& pool, std::span<const Array> gradients, double lr,
            double gradient_scale) final;
  NamedArrays state() const final;
  void load_state(const NamedArrays& state) final;

 protected:
  // A parameter and what is kept for it.
  struct Slot {
    std::string name;
    Array value;
    double lr_factor = 1, weight_decay = 0;
    std::vector<std::pair<std::string, Array>> state;

    int64_t size() const { return value.elements(); }
    // From element `begin` on.
    float* data(int64_t begin = 0) { return value.as_mutable<float>().data() + begin; }
    // The same of the i-th state array; null if there is none.
    float* state_data(size_t i, int64_t begin = 0) {
      return i < state.size() ? state[i].second.as_mutable<float>().data() + begin : nullptr;
    }
  };
  struct Update {
    int64_t begin, size;    // the elements
    const float* gradient;  // of the first of them
    double lr;              // of this slot
    double gradient_scale;  // multiplies the gradient
    int64_t t;              // 1, 2, …
  };

  // Adds a state array to `slot`, filled with `value`.
  static void keep(Slot& slot, const std::string& what, const Shape& shape, float value = 0);
  virtual void update(ThreadPool& pool, Slot& slot, const Update& update) = 0;

  std::vector<Slot> slots_;

 private:
  void check_gradients(std::span<const Array> gradients) const;

  Unit unit_;
  double sign_;  // of the gradients
  int64_t steps_ = 0;
};

// adafactor.cc, muon.cc.
std::unique_ptr<Optimizer> make_adafactor(const OptimizerConfig& config,
                                          std::vector<NamedParameter> parameters);
std::unique_ptr<Optimizer> make_muon(const OptimizerConfig& config,
                                     std::vector<NamedParameter> parameters);

// The settings of Adam without its step: lr, corrections and gradient scale are filled in by
// adam_update, which muon.cc shares.
struct AdamOptions {
  double beta1, beta2, eps;
  bool decoupled;
};
AdamOptions adam_options(const OptimizerConfig& config, bool decoupled);
void adam_update(ThreadPool& pool, const AdamOptions& options, int64_t n, double weight_decay,
                 double lr, double gradient_scale, int64_t t, const float* gradient, float* p,
                 float* m, float* v, float* v_max);

}  // namespace lumen::optim
