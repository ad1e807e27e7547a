#include "lib/runtime/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/runtime/output.h"

namespace lumen::runtime {
namespace {

constexpr auto kBarEvery = std::chrono::milliseconds(100);
constexpr auto kLineEvery = std::chrono::seconds(5);

bool has_terminal() {
  const char* term = std::getenv("TERM");
  return is_terminal(STDERR_FILENO) && !(term && std::strcmp(term, "dumb") == 0);
}

size_t terminal_columns() {
  winsize size = {};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

void put(std::string_view text) {
  try {
    write_stderr(text);
  } catch (const Error&) {  // nobody listens; the run goes on
  }
}

}  // namespace

void tell(std::string_view line) {
  put(str(line, "\n"));
}

std::string clock_text(double seconds) {
  const auto total = static_cast<int64_t>(std::clamp(seconds, 0.0, 1e9) + 0.5);
  const auto two = [](int64_t n) { return str(n < 10 ? "0" : "", n); };
  const std::string hours = total >= 3600 ? str(total / 3600, ":") : "";
  const int64_t minutes = total / 60 % 60;
  return hours + (hours.empty() ? str(minutes) : two(minutes)) + ":" + two(total % 60);
}

std::string metric_text(double value) {
  if (std::isnan(value)) return "NaN";  // whose sign means nothing
  if (value == 0 || !(std::abs(value) < 1e-3)) return fixed(value, 4);
  char text[32];
  return {text, std::to_chars(text, std::end(text), value, std::chars_format::scientific, 3).ptr};
}

Progress::Progress(int64_t total_steps) : total_steps_(total_steps), terminal_(has_terminal()) {}

std::string Progress::describe(const State& state) const {
  std::string out = str("step ", state.step);
  if (total_steps_ > 0) out += str("/", total_steps_);
  out += "  loss " + metric_text(state.loss) + "  lr " + str(static_cast<float>(state.lr)) + "  " +
         group_digits(fixed(state.rate, state.rate < 10 ? 1 : 0)) + " " + state.unit + "/s";
  const double done = state.share - state.first_share;
  if (done > 0 && state.step - state.first_step >= 2) {
    const double elapsed = seconds_since(start_);
    out += "  ETA " + clock_text(elapsed * (1 - state.share) / done);
  }
  return out;
}

void Progress::update(const State& state) {
  const auto now = Clock::now();
  const bool first = state.step == state.first_step + 1;
  if (terminal_) {
    if (!first && now - shown_ < kBarEvery) return;
    draw(state);
  } else {
    if (!first && now - shown_ < kLineEvery) return;
    put(describe(state) + "\n");
  }
  shown_ = now;
}

void Progress::draw(const State& state) {
  const size_t columns = terminal_columns();
  const std::string text = describe(state);
  constexpr size_t kAround = 4;  // brackets and spaces
  std::string line = text;
  if (columns > text.size() + kAround + 10) {
    const size_t width = std::min<size_t>(columns - text.size() - kAround - 1, 40);
    const auto full =
        static_cast<size_t>(std::clamp(state.share, 0.0, 1.0) * static_cast<double>(width));
    line = "[" + std::string(full, '=') + std::string(width - full, ' ') + "] " + text;
  }
  put("\r" + line.substr(0, columns - 1) + "\x1b[K");
  drawn_ = true;
}

void Progress::say(std::string_view line) {
  clear();
  put(str(line, "\n"));
}

void Progress::clear() {
  if (drawn_) put("\r\x1b[K");
  drawn_ = false;
}

}  // namespace lumen::runtime
