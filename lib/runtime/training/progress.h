// How a run shows itself on standard error: a bar on a terminal, plain lines otherwise.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/clock.h"

namespace lumen::runtime {

// One line on standard error; a terminal or file that is gone is no error.
void tell(std::string_view line);

// "1:02:03", "4:05".
std::string clock_text(double seconds);

// A loss or another metric: "2.3026", below a thousandth "4.137e-06".
std::string metric_text(double value);

class Progress {
 public:
  struct State {
    int64_t step = 0;
    int64_t first_step = 0;  // of this session
    double share = 0;        // of the run that is done, 0 to 1
    double first_share = 0;
    double loss = 0, lr = 0;
    double rate = 0;           // per second
    const char* unit = "tok";  // of the rate
  };

  // `total_steps` 0: not known.
  explicit Progress(int64_t total_steps);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // After each step; shows it only now and then.
  void update(const State& state);
  // A line that stays.
  void say(std::string_view line);
  // Takes the bar away.
  void clear();

  // What the bar shows in at most `columns` characters, `elapsed` seconds after the session began.
  // Where it is narrow the bar itself goes first, then learning rate, speed, number of all steps
  // and labels: step, loss and the time left stay longest.
  static std::string bar(const State& state, int64_t total_steps, double elapsed, size_t columns);

 private:
  int64_t total_steps_;
  bool terminal_, drawn_ = false;
  Clock::time_point start_ = Clock::now(), shown_{};
};

}  // namespace lumen::runtime
