#include "lib/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/optim/check_range.h"

namespace lumen::optim {
namespace {

using Config = ScheduleConfig;

double cosine_between(double from, double to, double progress) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

double floor_of(const Config& c) {
  return c.min_lr.value_or(0);
}

// --- One function per type: the learning rate t ≥ 0 steps after the warm-up, of a run that has
// `length` steps after it ------------------------------------------------------------------------

double constant(const Config& c, double, double) {
  return c.lr;
}

double step(const Config& c, double t, double) {
  const double times = std::floor(t / static_cast<double>(*c.step_size));
  return std::max(floor_of(c), c.lr * std::pow(c.gamma.value_or(0.1), times));
}

// `t` from the start of the run.
double multistep(const Config& c, double t, double) {
  const auto passed = std::upper_bound(c.milestones.begin(), c.milestones.end(), t);
  const auto times = static_cast<double>(passed - c.milestones.begin());
  return std::max(floor_of(c), c.lr * std::pow(c.gamma.value_or(0.1), times));
}

double exponential(const Config& c, double t, double) {
  return std::max(floor_of(c), c.lr * std::pow(*c.gamma, t));
}

double progress_of(double t, double length) {
  return length > 0 ? std::min(1.0, t / length) : 1;
}

double polynomial(const Config& c, double t, double length) {
  const double left = std::pow(1 - progress_of(t, length), c.power.value_or(1));
  return floor_of(c) + (c.lr - floor_of(c)) * left;
}

double cosine(const Config& c, double t, double length) {
  return cosine_between(c.lr, floor_of(c), progress_of(t, length));
}

double cosine_restarts(const Config& c, double t, double length) {
  double period = c.period ? static_cast<double>(*c.period) : std::max(1.0, length);
  const double factor = c.period_factor.value_or(1);
  if (factor == 1) {
    t = std::fmod(t, period);
  } else {
    // Periods grow: their number is logarithmic in t.
    while (t >= period) t -= period, period *= factor;
  }
  return cosine_between(c.lr, floor_of(c), t / period);
}

double inverse_sqrt(const Config& c, double t, double) {
  return std::max(floor_of(c), c.lr / std::sqrt(1 + t / static_cast<double>(*c.timescale)));
}

// `t` from the start of the run of `length` steps; the warm-up is c.warmup of them. Both phases
// end on a step: the first at warm-up − 1, before the run if that is negative, the second at
// length − 1.
double one_cycle(const Config& c, double t, double length) {
  const double start = c.lr / c.div_factor.value_or(25);
  const double end = start / c.final_div_factor.value_or(1e4);
  const double top = c.warmup - 1;
  if (t <= top && top > 0) return cosine_between(start, c.lr, t / top);
  return cosine_between(c.lr, end, progress_of(t - top, length - 1 - top));
}

double wsd(const Config& c, double t, double length) {
  const double total = static_cast<double>(c.total_steps);
  const double decay = std::min(length, std::round(c.decay_fraction.value_or(0.1) * total));
  const double stable = length - decay;
  if (t < stable) return c.lr;
  const double progress = progress_of(t - stable, decay);
  const std::string shape = c.decay.value_or("cosine");
  const double left = shape == "linear"   ? 1 - progress
                      : shape == "1-sqrt" ? 1 - std::sqrt(progress)
                                          : cosine_between(1, 0, progress);
  return floor_of(c) + (c.lr - floor_of(c)) * left;
}

// --- The list ------------------------------------------------------------------------------------

struct ScheduleType {
  std::string name;
  double (*rule)(const Config&, double t, double length);
  std::vector<std::string> options;  // besides lr, total_steps and warmup
  std::vector<std::string> needs;
};

const std::vector<ScheduleType>& schedule_table() {
  static const std::vector<ScheduleType> list = {
      {"constant", constant, {}, {}},
      {"step", step, {"min_lr", "step_size", "gamma"}, {"step_size"}},
      {"multistep", multistep, {"min_lr", "milestones", "gamma"}, {"milestones"}},
      {"exponential", exponential, {"min_lr", "gamma"}, {"gamma"}},
      {"polynomial", polynomial, {"min_lr", "power"}, {"total_steps"}},
      {"linear", polynomial, {"min_lr"}, {"total_steps"}},
      {"cosine", cosine, {"min_lr"}, {"total_steps"}},
      {"cosine_restarts", cosine_restarts, {"min_lr", "period", "period_factor"}, {}},
      {"inverse_sqrt", inverse_sqrt, {"min_lr", "timescale"}, {}},
      {"one_cycle", one_cycle, {"div_factor", "final_div_factor"}, {"total_steps"}},
      {"wsd", wsd, {"min_lr", "decay_fraction", "decay"}, {"total_steps"}},
      {"plateau", constant, {"min_lr", "factor", "patience", "threshold", "cooldown", "mode"}, {}},
  };
  return list;
}

const ScheduleType& find_type(const std::string& name) {
  for (const ScheduleType& type : schedule_table()) {
    if (type.name == name) return type;
  }
  const std::string near = nearest(name, schedule_types());
  fail(ErrorKind::kMalformed, "there is no schedule ", quoted(name),
       near.empty() ? "" : str(" (nearest: ", near, ")"),
       "; known: ", join(schedule_types(), ", "));
}

// Options that only some types have, with whether they are given.
std::vector<std::pair<std::string, bool>> given_options(const Config& c) {
  return {{"min_lr", c.min_lr.has_value()},
          {"step_size", c.step_size.has_value()},
          {"milestones", !c.milestones.empty()},
          {"gamma", c.gamma.has_value()},
          {"power", c.power.has_value()},
          {"period", c.period.has_value()},
          {"period_factor", c.period_factor.has_value()},
          {"timescale", c.timescale.has_value()},
          {"div_factor", c.div_factor.has_value()},
          {"final_div_factor", c.final_div_factor.has_value()},
          {"decay_fraction", c.decay_fraction.has_value()},
          {"decay", c.decay.has_value()},
          {"factor", c.factor.has_value()},
          {"patience", c.patience.has_value()},
          {"threshold", c.threshold.has_value()},
          {"cooldown", c.cooldown.has_value()},
          {"mode", c.mode.has_value()}};
}

void check_options(const Config& c, const ScheduleType& type) {
  auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  for (const auto& option : given_options(c)) {
    if (option.second && !has(type.options, option.first)) {
      fail(ErrorKind::kMalformed, "schedule ", type.name, " has no option ", option.first,
           type.options.empty() ? "" : str("; it has: ", join(type.options, ", ")));
    }
    if (!option.second && has(type.needs, option.first)) {
      fail(ErrorKind::kMalformed, "schedule ", type.name, " needs ", option.first);
    }
  }
  const bool share = c.warmup > 0 && c.warmup < 1;
  if (c.total_steps < 1 && (has(type.needs, "total_steps") || share)) {
    fail(ErrorKind::kMalformed, "schedule ", type.name,
         " needs the number of steps of the run: give train.steps or train.epochs");
  }
}

void check_schedule_values(const Config& c) {
  const auto check = [](const char* name, double value, double low, double high) {
    check_range("schedule", name, value, low, high);
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kTiny = std::numeric_limits<double>::min();
  auto number = [](std::optional<int64_t> value, int64_t otherwise) {
    return static_cast<double>(value.value_or(otherwise));
  };
  check("lr", c.lr, 0, std::numeric_limits<double>::max());
  check("total_steps", static_cast<double>(c.total_steps), 0, 1e15);
  check("warmup", c.warmup, 0, 1e15);
  check("min_lr", floor_of(c), 0, c.lr);
  check("step_size", number(c.step_size, 1), 1, kInfinity);
  check("gamma", c.gamma.value_or(1), 0, kInfinity);
  check("power", c.power.value_or(1), 0, kInfinity);
  check("period", number(c.period, 1), 1, kInfinity);
  check("period_factor", c.period_factor.value_or(1), 1, kInfinity);
  check("timescale", number(c.timescale, 1), 1, kInfinity);
  check("div_factor", c.div_factor.value_or(1), kTiny, kInfinity);
  check("final_div_factor", c.final_div_factor.value_or(1), kTiny, kInfinity);
  check("decay_fraction", c.decay_fraction.value_or(0), 0, 1);
  check("factor", c.factor.value_or(0), 0, std::nextafter(1.0, 0.0));
  check("patience", number(c.patience, 0), 0, kInfinity);
  check("threshold", c.threshold.value_or(0), 0, kInfinity);
  check("cooldown", number(c.cooldown, 0), 0, kInfinity);
  if (!std::is_sorted(c.milestones.begin(), c.milestones.end())) {
    fail(ErrorKind::kMalformed, "schedule: milestones are not increasing");
  }
  const std::string decay = c.decay.value_or("cosine"), mode = c.mode.value_or("min");
  if (decay != "cosine" && decay != "linear" && decay != "1-sqrt") {
    fail(ErrorKind::kMalformed, "schedule: decay is ", quoted(decay),
         ", expected cosine, linear or 1-sqrt");
  }
  if (mode != "min" && mode != "max") {
    fail(ErrorKind::kMalformed, "schedule: mode is ", quoted(mode), ", expected min or max");
  }
}

}  // namespace

std::vector<std::string> schedule_types() {
  std::vector<std::string> names;
  for (const ScheduleType& type : schedule_table()) names.push_back(type.name);
  return names;
}

Schedule::Schedule(const ScheduleConfig& config) : config_(config), reduced_lr_(config.lr) {
  const ScheduleType& type = find_type(config.type);
  rule_ = type.rule;
  check_options(config, type);
  check_schedule_values(config);
  const auto total = static_cast<double>(config.total_steps);
  double warmup = config.warmup < 1 ? config.warmup * total : config.warmup;
  if (rule_ == one_cycle) {
    config_.warmup = warmup > 0 ? warmup : 0.3 * total;
  } else {
    warmup_ = std::llround(warmup);
  }
  if (config.total_steps > 0 && warmup > total) {
    fail(ErrorKind::kMalformed, "schedule: a warm-up of ", warmup, " steps in a run of ",
         config.total_steps);
  }
  if (!config_.timescale) config_.timescale = warmup_ > 0 ? warmup_ : 10'000;
}

double Schedule::lr(int64_t step) const {
  const auto s = static_cast<double>(step), warmup = static_cast<double>(warmup_);
  if (step < warmup_) return reduced_lr_ * s / warmup;
  if (config_.type == "plateau") return reduced_lr_;
  const bool whole_run = rule_ == multistep;
  const double length = static_cast<double>(config_.total_steps) - warmup;
  return rule_(config_, whole_run ? s : s - warmup, length);
}

// torch.optim.lr_scheduler.ReduceLROnPlateau with threshold_mode="rel".
void Schedule::observe(double metric) {
  if (config_.type != "plateau") return;
  constexpr double kLeastChange = 1e-8;
  const double threshold = config_.threshold.value_or(1e-4);
  const bool most = config_.mode.value_or("min") == "max";
  const bool better =
      std::isfinite(metric) &&
      (!best_ || (most ? metric > *best_ * (1 + threshold) : metric < *best_ * (1 - threshold)));
  if (better) best_ = metric;
  bad_ = better ? 0 : bad_ + 1;
  if (cooldown_ > 0) --cooldown_, bad_ = 0;
  if (bad_ <= config_.patience.value_or(10)) return;
  const double reduced = std::max(floor_of(config_), reduced_lr_ * config_.factor.value_or(0.1));
  if (reduced_lr_ - reduced > kLeastChange) reduced_lr_ = reduced;
  cooldown_ = config_.cooldown.value_or(0);
  bad_ = 0;
}

io::Json Schedule::state() const {
  if (config_.type != "plateau") return io::Json::object();
  io::Json state = {{"lr", reduced_lr_}, {"bad", bad_}, {"cooldown", cooldown_}};
  if (best_) state["best"] = *best_;
  return state;
}

void Schedule::load_state(const io::Json& state) {
  if (config_.type != "plateau") return;
  constexpr double kMost = std::numeric_limits<double>::max();
  constexpr int64_t kMostCount = std::numeric_limits<int64_t>::max();
  const double lr = io::get_number(state, "lr", 0, config_.lr);
  const int64_t bad = io::get_int(state, "bad", 0, kMostCount);
  const int64_t cooldown = io::get_int(state, "cooldown", 0, kMostCount);
  best_.reset();
  if (io::find_value(state, "best")) best_ = io::get_number(state, "best", -kMost, kMost);
  reduced_lr_ = lr, bad_ = bad, cooldown_ = cooldown;
}

}  // namespace lumen::optim
