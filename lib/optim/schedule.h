// Learning rate schedules: the learning rate of every step.
//
// Formulas are those of torch.optim.lr_scheduler and transformers.get_scheduler.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/io/json.h"

namespace lumen::optim {

// Keys as in recipes; an option that the type does not have is an error.
//
// t counts steps from the end of the warm-up, T = total_steps − warm-up, l = lr, m = min_lr;
// beyond the end the last value holds.
//   constant         l
//   step             l · gamma^⌊t / step_size⌋
//   multistep        l · gamma^(milestones ≤ step), steps counted from the start of the run
//   exponential      l · gamma^t
//   polynomial       m + (l − m)(1 − t/T)^power
//   linear           m + (l − m)(1 − t/T)
//   cosine           m + (l − m)(1 + cos(π t/T))/2 (Loshchilov & Hutter 2017)
//   cosine_restarts  cosine over periods of period, period · period_factor, … steps
//   inverse_sqrt     l / √(1 + t/timescale) (Vaswani et al. 2017)
//   one_cycle        cosine from l/div_factor to l over the warm-up, then to
//                    l/(div_factor · final_div_factor) at the last step (Smith & Topin 2018)
//   wsd              l, and over the last decay_fraction of the run down to m by `decay`
//                    (warm-up, stable, decay: Hu et al. 2024)
//   plateau          l, times factor whenever the observed metric has not improved for more than
//                    `patience` observations; one that is not finite is no improvement
// step, multistep, exponential, inverse_sqrt and plateau stay at or above min_lr.
struct ScheduleConfig {
  std::string type = "constant";
  double lr = 1e-3;
  int64_t total_steps = 0;  // of the run; polynomial, linear, cosine, one_cycle and wsd need it
  // Steps of the warm-up, in which lr rises linearly from 0; below 1: that share of total_steps.
  // one_cycle: 0 stands for its own 0.3.
  double warmup = 0;
  std::optional<double> min_lr{};            // 0
  std::optional<int64_t> step_size{};        // step: needed
  std::vector<int64_t> milestones{};         // multistep: needed, increasing
  std::optional<double> gamma{};             // step, multistep: 0.1; exponential: needed
  std::optional<double> power{};             // polynomial: 1
  std::optional<int64_t> period{};           // cosine_restarts: T
  std::optional<double> period_factor{};     // cosine_restarts: 1
  std::optional<int64_t> timescale{};        // inverse_sqrt: the warm-up, or 10,000 without one
  std::optional<double> div_factor{};        // one_cycle: 25
  std::optional<double> final_div_factor{};  // one_cycle: 1e4
  std::optional<double> decay_fraction{};    // wsd: 0.1
  std::optional<std::string> decay{};        // wsd: "cosine", or "linear" or "1-sqrt"
  std::optional<double> factor{};            // plateau: 0.1
  std::optional<int64_t> patience{};         // plateau: 10
  std::optional<double> threshold{};         // plateau: 1e-4, the least relative improvement
  std::optional<int64_t> cooldown{};         // plateau: 0 observations without counting
  std::optional<std::string> mode{};         // plateau: "min", or "max"
};

// Not thread-safe.
class Schedule {
 public:
  // Throws Error(kMalformed) for an unknown type, naming the nearest, for options that the type
  // does not have or lacks, and for values out of range.
  explicit Schedule(const ScheduleConfig& config);

  // The learning rate of the step with this index ≥ 0. Depends on nothing else but, for plateau,
  // on what was observed.
  double lr(int64_t step) const;

  // A metric of an evaluation, for plateau; the others ignore it.
  void observe(double metric);

  // What observe() left behind; throws Error(kMalformed) if `state` is not what state() gave.
  io::Json state() const;
  void load_state(const io::Json& state);

 private:
  ScheduleConfig config_;
  double (*rule_)(const ScheduleConfig&, double t, double length);
  int64_t warmup_ = 0;
  // plateau:
  double reduced_lr_;
  std::optional<double> best_;
  int64_t bad_ = 0, cooldown_ = 0;
};

// All types, for messages and tests.
std::vector<std::string> schedule_types();

}  // namespace lumen::optim
