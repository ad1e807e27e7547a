#include "lib/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "lib/base/testing.h"

using namespace lumen;
using optim::Schedule;
using optim::ScheduleConfig;
using testing::contains;
using testing::refusal;

namespace {

const io::Json& schedule_golden() {
  static const io::Json document =
      io::read_json(testing::source_path("testdata/goldens/optim.json"));
  return document;
}

ScheduleConfig schedule_config(const io::Json& json) {
  ScheduleConfig c;
  for (const auto& item : json.items()) {
    const std::string& key = item.key();
    const io::Json& value = item.value();
    if (key == "type") c.type = value;
    if (key == "lr") c.lr = value;
    if (key == "total_steps") c.total_steps = value;
    if (key == "warmup") c.warmup = value;
    if (key == "min_lr") c.min_lr = value.get<double>();
    if (key == "step_size") c.step_size = value.get<int64_t>();
    if (key == "milestones") c.milestones = value.get<std::vector<int64_t>>();
    if (key == "gamma") c.gamma = value.get<double>();
    if (key == "power") c.power = value.get<double>();
    if (key == "period") c.period = value.get<int64_t>();
    if (key == "period_factor") c.period_factor = value.get<double>();
    if (key == "timescale") c.timescale = value.get<int64_t>();
    if (key == "div_factor") c.div_factor = value.get<double>();
    if (key == "final_div_factor") c.final_div_factor = value.get<double>();
    if (key == "decay_fraction") c.decay_fraction = value.get<double>();
    if (key == "decay") c.decay = value.get<std::string>();
    if (key == "factor") c.factor = value.get<double>();
    if (key == "patience") c.patience = value.get<int64_t>();
    if (key == "threshold") c.threshold = value.get<double>();
    if (key == "cooldown") c.cooldown = value.get<int64_t>();
    if (key == "mode") c.mode = value.get<std::string>();
  }
  return c;
}

}  // namespace

TEST_CASE("every schedule is the one of torch or transformers") {
  std::vector<std::string> seen = {"plateau"};
  for (const io::Json& item : schedule_golden()["schedules"]) {
    const ScheduleConfig config = schedule_config(item["config"]);
    seen.push_back(config.type);
    const Schedule schedule(config);
    for (size_t step = 0; step < item["rates"].size(); ++step) {
      INFO(item["config"] << " step " << step);
      const double want = item["rates"][step];
      CHECK(schedule.lr(static_cast<int64_t>(step)) == Approx(want).epsilon(1e-9).margin(1e-12));
    }
  }
  for (const std::string& type : optim::schedule_types()) {
    INFO(type << " has no golden");
    CHECK(std::ranges::find(seen, type) != seen.end());
  }
}

TEST_CASE("a run too short for a step of one cycle's warm-up begins on the way down, as torch's") {
  const Schedule schedule({.type = "one_cycle", .lr = 1, .total_steps = 2});  // warm-up 0.6 steps
  const double end = 1 / 25e4, left = (1 + std::cos(std::numbers::pi * 0.4 / 1.4)) / 2;
  CHECK(schedule.lr(0) == Approx(end + (1 - end) * left));
  CHECK(schedule.lr(1) == Approx(end));
}

TEST_CASE("plateau is torch's, also from a saved state") {
  for (const io::Json& item : schedule_golden()["plateaus"]) {
    Schedule schedule(schedule_config(item["config"]));
    for (size_t i = 0; i < item["rates"].size(); ++i) {
      INFO(item["config"] << " observation " << i);
      const io::Json& metric = item["metrics"][i];
      schedule.observe(metric.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                        : metric.get<double>());
      CHECK(schedule.lr(0) == Approx(item["rates"][i].get<double>()).epsilon(1e-12));
      Schedule restored(schedule_config(item["config"]));
      restored.load_state(io::parse_json(schedule.state().dump(), "state"));
      schedule = restored;
    }
  }
}

TEST_CASE("every schedule warms up from 0, stays finite, and holds its last value") {
  for (const std::string& type : optim::schedule_types()) {
    ScheduleConfig config{.type = type, .lr = 0.5, .total_steps = 100, .warmup = 10};
    if (type == "step") config.step_size = 7;
    if (type == "multistep") config.milestones = {30, 60};
    if (type == "exponential") config.gamma = 0.99;
    INFO(type);
    const Schedule schedule(config);
    for (int64_t step = 1; step < 10; ++step) CHECK(schedule.lr(step) > schedule.lr(step - 1));
    CHECK(schedule.lr(type == "one_cycle" ? 9 : 10) == 0.5);
    for (int64_t step : {99, 100, 1000, 1'000'000}) {
      CHECK(std::isfinite(schedule.lr(step)));
      CHECK(schedule.lr(step) >= 0);
    }
    for (int64_t total : {1, 2, 10}) {  // a run that is nothing but warm-up
      config.total_steps = total;
      config.warmup = static_cast<double>(total);
      const Schedule brief(config);
      for (int64_t step = 0; step < 12; ++step) CHECK(std::isfinite(brief.lr(step)));
    }
  }
  const Schedule cosine({.type = "cosine", .lr = 1, .total_steps = 10, .min_lr = 0.25});
  CHECK(cosine.lr(10) == Approx(0.25));
  CHECK(cosine.lr(500) == Approx(0.25));
}

TEST_CASE("mistakes in a schedule's configuration are named") {
  auto message = [](const ScheduleConfig& config) {
    return refusal(ErrorKind::kMalformed, [&] { Schedule schedule(config); });
  };
  CHECK(contains(message({.type = "cosin"}), "nearest: cosine"));
  CHECK(contains(message({.type = "cosine"}), "needs the number of steps"));
  CHECK(contains(message({.type = "constant", .warmup = 0.1}), "needs the number of steps"));
  CHECK(contains(message({.type = "step"}), "needs step_size"));
  CHECK(contains(message({.type = "cosine", .total_steps = 9, .gamma = 0.5}),
                 "cosine has no option gamma; it has: min_lr"));
  CHECK(contains(message({.type = "exponential", .lr = 1, .min_lr = 2, .gamma = 1}),
                 "min_lr is 2, expected 0 to 1"));
  CHECK(contains(message({.type = "linear", .total_steps = 9, .warmup = 10}), "in a run of 9"));
  CHECK(contains(message({.type = "multistep", .milestones = {5, 3}}), "not increasing"));
  CHECK(contains(message({.type = "wsd", .total_steps = 9, .decay = "x"}), "1-sqrt"));
}
