#include "lib/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "lib/base/error.h"
#include "lib/base/round_up.h"
#include "lib/base/strings.h"
#include "lib/kernels/optimizer_step.h"
#include "lib/optim/check_range.h"
#include "lib/optim/slot_optimizer.h"

namespace lumen::optim {

// --- What all share ------------------------------------------------------------------------------

namespace {

// The group of a parameter: the first that matches; the end if there is none.
auto group_of(const OptimizerConfig& config, const std::string& name) {
  return std::find_if(config.groups.begin(), config.groups.end(),
                      [&](const ParameterGroup& g) { return matches_pattern(name, g.match); });
}

}  // namespace

std::optional<size_t> unused_group(const OptimizerConfig& config,
                                   const std::vector<NamedParameter>& parameters) {
  std::vector<bool> used(config.groups.size() + 1);
  for (const NamedParameter& parameter : parameters) {
    used[static_cast<size_t>(group_of(config, parameter.name) - config.groups.begin())] = true;
  }
  const auto found = std::find(used.begin(), used.end() - 1, false);
  if (found == used.end() - 1) return std::nullopt;
  return static_cast<size_t>(found - used.begin());
}

std::optional<size_t> unused_no_decay(const OptimizerConfig& config,
                                      const std::vector<NamedParameter>& parameters) {
  for (size_t i = 0; i < config.no_decay.size(); ++i) {
    const std::string& pattern = config.no_decay[i];
    const bool used = std::any_of(parameters.begin(), parameters.end(), [&](const auto& parameter) {
      return matches_pattern(parameter.name, pattern);
    });
    if (!used && pattern != "1d") return i;
  }
  return std::nullopt;
}

// Elements that a thread is given at a time of a parameter, a multiple of every vector.
constexpr int64_t kGrain = 1024;

SlotOptimizer::SlotOptimizer(const OptimizerConfig& config, std::vector<NamedParameter> parameters,
                             Unit unit)
    : unit_(unit), sign_(config.maximize ? -1 : 1) {
  if (const auto unused = unused_group(config, parameters)) {
    fail(ErrorKind::kMalformed, "optimizer group ", quoted(config.groups[*unused].match),
         " is of no parameter: none has such a name, or earlier groups match it");
  }
  std::set<std::string> names;
  for (NamedParameter& parameter : parameters) {
    if (parameter.value.dtype() != DType::kF32) {
      fail(ErrorKind::kMalformed, "optimizer: the parameter ", quoted(parameter.name), " has type ",
           lumen::name(parameter.value.dtype()), ", expected f32");
    }
    if (parameter.value.empty() && parameter.value.elements() > 0) {
      fail(ErrorKind::kMalformed, "optimizer: the parameter ", quoted(parameter.name),
           " has no value");
    }
    if (!names.insert(parameter.name).second) {
      fail(ErrorKind::kMalformed, "optimizer: two parameters are named ", quoted(parameter.name));
    }
    Slot slot{std::move(parameter.name), std::move(parameter.value), 1, config.weight_decay, {}};
    for (const std::string& pattern : config.no_decay) {
      const bool is_vector = pattern == "1d" && slot.value.shape().rank() <= 1;
      if (is_vector || matches_pattern(slot.name, pattern)) slot.weight_decay = 0;
    }
    if (const auto group = group_of(config, slot.name); group != config.groups.end()) {
      slot.lr_factor = group->lr_factor;
      slot.weight_decay = group->weight_decay.value_or(slot.weight_decay);
    }
    slots_.push_back(std::move(slot));
  }
}

void SlotOptimizer::keep(Slot& slot, const std::string& what, const Shape& shape, float value) {
  Array array = Array::zeros(DType::kF32, shape);
  if (value != 0) std::ranges::fill(array.as_mutable<float>(), value);
  slot.state.emplace_back(what, std::move(array));
}

void SlotOptimizer::check_gradients(std::span<const Array> gradients) const {
  if (gradients.size() != slots_.size()) {
    fail(ErrorKind::kMalformed, "optimizer: ", gradients.size(), " gradients for ", slots_.size(),
         " parameters");
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Array &gradient = gradients[i], &value = slots_[i].value;
    const bool missing = gradient.empty() && gradient.elements() > 0;
    const bool fits = gradient.dtype() == DType::kF32 && gradient.elements() == value.elements();
    if (fits && !missing) continue;
    fail(ErrorKind::kMalformed, "optimizer: the gradient of ", quoted(slots_[i].name), " is ",
         missing ? str("missing")
                 : str(lumen::name(gradient.dtype()), " ", to_string(gradient.shape())),
         ", expected f32 ", to_string(value.shape()));
  }
}

void SlotOptimizer::step(ThreadPool& pool, std::span<const Array> gradients, double lr,
                         double gradient_scale) {
  check_gradients(gradients);
  ++steps_;
  const auto update_part = [&](size_t i, int64_t begin, int64_t end) {
    if (begin >= end) return;
    Slot& slot = slots_[i];
    update(pool, slot,
           {.begin = begin,
            .size = end - begin,
            .gradient = gradients[i].as<float>().data() + begin,
            .lr = lr * slot.lr_factor,
            .gradient_scale = sign_ * gradient_scale,
            .t = steps_});
  };
  if (unit_ == Unit::kParameter) {
    for (size_t i = 0; i < slots_.size(); ++i) update_part(i, 0, slots_[i].size());
    return;
  }
  // Threads meet once, not after each parameter.
  pool.run([&](int thread, int threads) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      const int64_t size = slots_[i].size(), grains = divide_up(size, kGrain);
      update_part(i, grains * thread / threads * kGrain,
                  std::min(size, grains * (thread + 1) / threads * kGrain));
    }
  });
}

NamedArrays SlotOptimizer::state() const {
  NamedArrays arrays;
  arrays["step"] = Array::from<int64_t>(std::span(&steps_, 1), {});
  for (const Slot& slot : slots_) {
    for (const auto& [what, array] : slot.state) arrays[str(slot.name, ".", what)] = array;
  }
  return arrays;
}

void SlotOptimizer::load_state(const NamedArrays& given) {
  NamedArrays own = state();
  check_same_names(own, given, "the optimizer");
  for (const auto& [name, array] : own) {
    if (given.at(name).dtype() == array.dtype()) continue;
    fail(ErrorKind::kMismatch, "the optimizer's ", quoted(name), " has type ",
         lumen::name(given.at(name).dtype()), ", expected ", lumen::name(array.dtype()));
  }
  const int64_t steps = given.at("step").as<int64_t>()[0];
  if (steps < 0) fail(ErrorKind::kMismatch, "the optimizer's step is negative: ", steps);
  steps_ = steps;
  for (auto& [name, array] : own) {
    if (name == "step" || array.elements() == 0) continue;
    std::memmove(array.mutable_data(), given.at(name).data(), array.bytes());
  }
}

namespace {

// --- Rules with a kernel of their own (kernels/optimizer_step.h has the formulas) --------------

class Sgd : public SlotOptimizer {
 public:
  Sgd(const OptimizerConfig& config, std::vector<NamedParameter> parameters)
      : SlotOptimizer(config, std::move(parameters), Unit::kElements) {
    step_.momentum = config.momentum.value_or(0);
    step_.dampening = config.dampening.value_or(0);
    step_.nesterov = config.nesterov.value_or(false);
    if (step_.nesterov && (step_.momentum <= 0 || step_.dampening != 0)) {
      fail(ErrorKind::kMalformed, "nesterov needs a momentum above 0 and no dampening");
    }
    for (Slot& slot : slots_) {
      if (step_.momentum != 0) keep(slot, "momentum_buffer", slot.value.shape());
    }
  }

 private:
  void update(ThreadPool& pool, Slot& slot, const Update& u) override {
    kernels::SgdStep step = step_;
    step.lr = u.lr;
    step.weight_decay = slot.weight_decay;
    step.gradient_scale = u.gradient_scale;
    step.first = u.t == 1;
    kernels::sgd_step(pool, u.size, step, slot.data(u.begin), u.gradient,
                      slot.state_data(0, u.begin));
  }
  kernels::SgdStep step_;
};

class Adam : public SlotOptimizer {
 public:
  Adam(const OptimizerConfig& config, std::vector<NamedParameter> parameters, bool decoupled)
      : SlotOptimizer(config, std::move(parameters), Unit::kElements),
        options_(adam_options(config, decoupled)) {
    for (Slot& slot : slots_) {
      keep(slot, "exp_avg", slot.value.shape());
      keep(slot, "exp_avg_sq", slot.value.shape());
      if (config.amsgrad.value_or(false)) keep(slot, "max_exp_avg_sq", slot.value.shape());
    }
  }

 private:
  void update(ThreadPool& pool, Slot& slot, const Update& u) override {
    adam_update(pool, options_, u.size, slot.weight_decay, u.lr, u.gradient_scale, u.t, u.gradient,
                slot.data(u.begin), slot.state_data(0, u.begin), slot.state_data(1, u.begin),
                slot.state_data(2, u.begin));
  }
  AdamOptions options_;
};

class Rmsprop : public SlotOptimizer {
 public:
  Rmsprop(const OptimizerConfig& config, std::vector<NamedParameter> parameters)
      : SlotOptimizer(config, std::move(parameters), Unit::kElements),
        centered_(config.centered.value_or(false)) {
    step_.alpha = config.alpha.value_or(step_.alpha);
    step_.eps = config.eps.value_or(step_.eps);
    step_.momentum = config.momentum.value_or(0);
    for (Slot& slot : slots_) {
      keep(slot, "square_avg", slot.value.shape());
      if (centered_) keep(slot, "grad_avg", slot.value.shape());
      if (step_.momentum != 0) keep(slot, "momentum_buffer", slot.value.shape());
    }
  }

 private:
  void update(ThreadPool& pool, Slot& slot, const Update& u) override {
    kernels::RmspropStep step = step_;
    step.lr = u.lr;
    step.weight_decay = slot.weight_decay;
    step.gradient_scale = u.gradient_scale;
    float* average = centered_ ? slot.state_data(1, u.begin) : nullptr;
    float* buffer = slot.state_data(centered_ ? 2 : 1, u.begin);
    kernels::rmsprop_step(pool, u.size, step, slot.data(u.begin), u.gradient,
                          slot.state_data(0, u.begin), average, buffer);
  }
  kernels::RmspropStep step_;
  bool centered_;
};

class Adagrad : public SlotOptimizer {
 public:
  Adagrad(const OptimizerConfig& config, std::vector<NamedParameter> parameters)
      : SlotOptimizer(config, std::move(parameters), Unit::kElements),
        lr_decay_(config.lr_decay.value_or(0)) {
    step_.eps = config.eps.value_or(step_.eps);
    const auto start = static_cast<float>(config.initial_accumulator.value_or(0));
    for (Slot& slot : slots_) keep(slot, "sum", slot.value.shape(), start);
  }

 private:
  void update(ThreadPool& pool, Slot& slot, const Update& u) override {
    kernels::AdagradStep step = step_;
    step.lr = u.lr / (1 + static_cast<double>(u.t - 1) * lr_decay_);
    step.weight_decay = slot.weight_decay;
    step.gradient_scale = u.gradient_scale;
    kernels::adagrad_step(pool, u.size, step, slot.data(u.begin), u.gradient,
                          slot.state_data(0, u.begin));
  }
  kernels::AdagradStep step_;
  double lr_decay_;
};

class Lion : public SlotOptimizer {
 public:
  Lion(const OptimizerConfig& config, std::vector<NamedParameter> parameters)
      : SlotOptimizer(config, std::move(parameters), Unit::kElements) {
    if (!config.betas.empty()) step_.beta1 = config.betas[0], step_.beta2 = config.betas[1];
    for (Slot& slot : slots_) keep(slot, "exp_avg", slot.value.shape());
  }

 private:
  void update(ThreadPool& pool, Slot& slot, const Update& u) override {
    kernels::LionStep step = step_;
    step.lr = u.lr;
    step.weight_decay = slot.weight_decay;
    step.gradient_scale = u.gradient_scale;
    kernels::lion_step(pool, u.size, step, slot.data(u.begin), u.gradient,
                       slot.state_data(0, u.begin));
  }
  kernels::LionStep step_;
};

// --- The list ------------------------------------------------------------------------------------

struct OptimizerType {
  std::string name;
  std::vector<std::string> options;  // besides weight_decay, no_decay and groups
  std::unique_ptr<Optimizer> (*make)(const OptimizerConfig&, std::vector<NamedParameter>);
};

template <typename T>
std::unique_ptr<Optimizer> make(const OptimizerConfig& config,
                                std::vector<NamedParameter> parameters) {
  return std::make_unique<T>(config, std::move(parameters));
}
template <bool decoupled>
std::unique_ptr<Optimizer> make_adam(const OptimizerConfig& config,
                                     std::vector<NamedParameter> parameters) {
  return std::make_unique<Adam>(config, std::move(parameters), decoupled);
}

const std::vector<OptimizerType>& optimizer_table() {
  static const std::vector<OptimizerType> list = {
      {"sgd", {"momentum", "dampening", "nesterov"}, make<Sgd>},
      {"adam", {"betas", "eps", "amsgrad"}, make_adam<false>},
      {"adamw", {"betas", "eps", "amsgrad"}, make_adam<true>},
      {"rmsprop", {"alpha", "eps", "momentum", "centered"}, make<Rmsprop>},
      {"adagrad", {"eps", "lr_decay", "initial_accumulator"}, make<Adagrad>},
      {"lion", {"betas"}, make<Lion>},
      {"adafactor", {"eps", "beta2_decay", "clip_threshold", "scale_eps"}, make_adafactor},
      {"muon",
       {"momentum", "nesterov", "newton_schulz_steps", "adjust_lr", "adamw_for", "betas", "eps"},
       make_muon},
  };
  return list;
}

// Calls visit(name, is given) for every option that only some types have.
template <typename Visit>
void for_options(const OptimizerConfig& c, Visit&& visit) {
  visit("betas", !c.betas.empty());
  visit("eps", c.eps.has_value());
  visit("momentum", c.momentum.has_value());
  visit("dampening", c.dampening.has_value());
  visit("nesterov", c.nesterov.has_value());
  visit("amsgrad", c.amsgrad.has_value());
  visit("alpha", c.alpha.has_value());
  visit("centered", c.centered.has_value());
  visit("lr_decay", c.lr_decay.has_value());
  visit("initial_accumulator", c.initial_accumulator.has_value());
  visit("beta2_decay", c.beta2_decay.has_value());
  visit("clip_threshold", c.clip_threshold.has_value());
  visit("scale_eps", c.scale_eps.has_value());
  visit("newton_schulz_steps", c.newton_schulz_steps.has_value());
  visit("adjust_lr", c.adjust_lr.has_value());
  visit("adamw_for", c.adamw_for.has_value());
}

void check_optimizer_values(const OptimizerConfig& c) {
  const auto check = [](const char* name, double value, double low, double high) {
    check_range("optimizer", name, value, low, high);
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  check("weight_decay", c.weight_decay, 0, kInfinity);
  if (!c.betas.empty() && c.betas.size() != 2) {
    fail(ErrorKind::kMalformed, "optimizer: betas has ", c.betas.size(), " numbers, expected 2");
  }
  for (double beta : c.betas) check("beta", beta, 0, std::nextafter(1.0, 0.0));
  check("eps", c.eps.value_or(0), 0, kInfinity);
  check("momentum", c.momentum.value_or(0), 0, kInfinity);
  check("dampening", c.dampening.value_or(0), -kInfinity, kInfinity);
  check("alpha", c.alpha.value_or(0), 0, 1);
  check("lr_decay", c.lr_decay.value_or(0), 0, kInfinity);
  check("initial_accumulator", c.initial_accumulator.value_or(0), 0, kInfinity);
  check("beta2_decay", c.beta2_decay.value_or(0), -kInfinity, 0);
  check("clip_threshold", c.clip_threshold.value_or(1), 1, kInfinity);
  check("scale_eps", c.scale_eps.value_or(0), 0, kInfinity);
  check("newton_schulz_steps", static_cast<double>(c.newton_schulz_steps.value_or(5)), 1, 99);
  for (const ParameterGroup& group : c.groups) {
    check("lr_factor", group.lr_factor, 0, kInfinity);
    check("weight_decay", group.weight_decay.value_or(0), 0, kInfinity);
  }
}

}  // namespace

AdamOptions adam_options(const OptimizerConfig& config, bool decoupled) {
  const bool given = !config.betas.empty();
  return {given ? config.betas[0] : 0.9, given ? config.betas[1] : 0.999, config.eps.value_or(1e-8),
          decoupled};
}

void adam_update(ThreadPool& pool, const AdamOptions& options, int64_t n, double weight_decay,
                 double lr, double gradient_scale, int64_t t, const float* gradient, float* p,
                 float* m, float* v, float* v_max) {
  const auto steps = static_cast<double>(t);
  kernels::adam_step(pool, n,
                     {.lr = lr,
                      .beta1 = options.beta1,
                      .beta2 = options.beta2,
                      .eps = options.eps,
                      .weight_decay = weight_decay,
                      .gradient_scale = gradient_scale,
                      .bias_correction1 = 1 - std::pow(options.beta1, steps),
                      .bias_correction2 = 1 - std::pow(options.beta2, steps),
                      .decoupled = options.decoupled},
                     p, gradient, m, v, v_max);
}

std::vector<std::string> optimizer_types() {
  std::vector<std::string> names;
  for (const OptimizerType& type : optimizer_table()) names.push_back(type.name);
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                          std::vector<NamedParameter> parameters) {
  auto type = std::find_if(optimizer_table().begin(), optimizer_table().end(),
                           [&](const OptimizerType& t) { return t.name == config.type; });
  if (type == optimizer_table().end()) {
    const std::string near = nearest(config.type, optimizer_types());
    fail(ErrorKind::kMalformed, "there is no optimizer ", quoted(config.type),
         near.empty() ? "" : str(" (nearest: ", near, ")"),
         "; known: ", join(optimizer_types(), ", "));
  }
  for_options(config, [&](const char* option, bool given) {
    if (!given || std::ranges::find(type->options, option) != type->options.end()) return;
    fail(ErrorKind::kMalformed, "optimizer ", type->name, " has no option ", option,
         "; it has: ", join(type->options, ", "));
  });
  check_optimizer_values(config);
  return type->make(config, std::move(parameters));
}

}  // namespace lumen::optim
