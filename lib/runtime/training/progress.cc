#include "lib/runtime/training/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/runtime/tool/output.h"

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

// What a line is made of.
class LineParts {
 public:
  enum How { kAll, kNoLearningRate, kNoSpeed, kNoTotal, kNumbers };  // the shorter, the later

  LineParts(const Progress::State& state, int64_t total_steps, double elapsed) : state_(state) {
    if (total_steps > 0) total_ = str("/", total_steps);
    const double done = state.share - state.first_share;
    if (done > 0 && state.step - state.first_step >= 2) {
      left_ = clock_text(elapsed * (1 - state.share) / done);
    }
  }

  std::string line(How how) const {
    const std::string loss = metric_text(state_.loss);
    if (how == kNumbers) return str(state_.step, " ", loss, left_.empty() ? "" : " ", left_);
    std::string out = str("step ", state_.step, how < kNoTotal ? total_ : "", "  loss ", loss);
    if (how < kNoLearningRate) out += "  lr " + str(static_cast<float>(state_.lr));
    if (how < kNoSpeed) {
      out += "  " + group_digits(fixed(state_.rate, state_.rate < 10 ? 1 : 0)) + " " + state_.unit +
             "/s";
    }
    if (!left_.empty()) out += "  ETA " + left_;
    return out;
  }

 private:
  const Progress::State& state_;
  std::string total_, left_;
};

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

void Progress::update(const State& state) {
  const auto now = Clock::now();
  const bool first = state.step == state.first_step + 1;
  if (!first && now - shown_ < (terminal_ ? kBarEvery : kLineEvery)) return;
  const double elapsed = seconds_since(start_);
  if (terminal_) {
    put("\r" + bar(state, total_steps_, elapsed, terminal_columns() - 1) + "\x1b[K");
    drawn_ = true;
  } else {
    put(LineParts(state, total_steps_, elapsed).line(LineParts::kAll) + "\n");
  }
  shown_ = now;
}

std::string Progress::bar(const State& state, int64_t total_steps, double elapsed, size_t columns) {
  const LineParts parts(state, total_steps, elapsed);
  const std::string text = parts.line(LineParts::kAll);
  constexpr size_t kAround = 3;  // brackets and a space
  constexpr size_t kNarrowest = 11, kWidest = 40;
  if (columns >= text.size() + kAround + kNarrowest) {
    const size_t width = std::min(columns - text.size() - kAround, kWidest);
    const auto full =
        static_cast<size_t>(std::clamp(state.share, 0.0, 1.0) * static_cast<double>(width));
    return "[" + std::string(full, '=') + std::string(width - full, ' ') + "] " + text;
  }
  for (int how = LineParts::kAll; how < LineParts::kNumbers; ++how) {
    std::string line = parts.line(static_cast<LineParts::How>(how));
    if (line.size() <= columns) return line;
  }
  return parts.line(LineParts::kNumbers).substr(0, columns);
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
