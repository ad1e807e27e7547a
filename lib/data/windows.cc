#include "lib/data/windows.h"

#include <algorithm>

#include "lib/data/batch_arrays.h"
#include "lib/data/shuffle.h"

namespace lumen::data {
namespace {

// Cuts `runs` to the tokens of the first `most` windows.
template <typename Token>
void keep_first(int64_t most, int64_t seq, std::vector<TokenRun<Token>>& runs) {
  for (TokenRun<Token>& run : runs) {
    const auto targets = static_cast<int64_t>(run.tokens.size()) - 1;
    const int64_t windows = std::min(most, (targets + seq - 1) / seq);
    run.tokens = run.tokens.first(static_cast<size_t>(std::min(targets, windows * seq)) + 1);
    most -= windows;
  }
  std::erase_if(runs, [](const TokenRun<Token>& run) { return run.tokens.size() < 2; });
}

template <typename Token>
class WindowDataset : public Dataset {
 public:
  WindowDataset(std::vector<TokenRun<Token>> runs, const WindowSettings& settings, double& counted)
      : runs_(std::move(runs)), settings_(settings) {
    counted = 0;
    for (const TokenRun<Token>& run : runs_) {
      const int64_t targets = targets_of(run);
      const int64_t windows = settings_.moving ? std::max<int64_t>(1, targets / settings_.seq - 1)
                                               : (targets + settings_.seq - 1) / settings_.seq;
      ends_.push_back(samples() + windows);
      counted += static_cast<double>(std::min(targets, windows * settings_.seq));
    }
  }

  int64_t samples() const override { return ends_.empty() ? 0 : ends_.back(); }

  void collate(const Request& request, Batch& batch) const override {
    const int64_t seq = settings_.seq;
    const Shape shape = {request.count, seq};
    auto tokens = writable<int32_t>(batch, "tokens", shape);
    auto targets = writable<int32_t>(batch, "targets", shape);
    auto positions = writable<int32_t>(batch, "positions", shape);
    auto segments = writable<int32_t>(batch, "segments", shape);
    int64_t counted = 0;
    for (int64_t i = 0; i < request.count; ++i) {
      const std::span<const Token> window = window_of(request, request.indices[i]);
      const auto slots = static_cast<int64_t>(window.size()) - 1;
      const bool real = i < request.real;
      for (int64_t j = 0; j < seq; ++j) {
        const auto out = static_cast<size_t>(i * seq + j);
        const bool inside = j < slots;
        const auto from = static_cast<size_t>(j);
        tokens[out] = inside ? static_cast<int32_t>(window[from]) : 0;
        targets[out] = inside && real ? static_cast<int32_t>(window[from + 1]) : kIgnored;
        positions[out] = static_cast<int32_t>(j);
        segments[out] = inside ? 0 : kPadding;
      }
      if (real) counted += std::min(slots, seq);
    }
    batch.samples = request.real;
    batch.tokens = static_cast<double>(counted);
  }

 private:
  static int64_t targets_of(const TokenRun<Token>& run) {
    return static_cast<int64_t>(run.tokens.size()) - 1;
  }

  // At most seq + 1 tokens.
  std::span<const Token> window_of(const Request& request, int64_t index) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const auto number = static_cast<size_t>(end - ends_.begin());
    const TokenRun<Token>& run = runs_[number];
    const int64_t first = number == 0 ? 0 : ends_[number - 1];
    int64_t begin = (index - first) * settings_.seq;
    if (settings_.moving) {
      const int64_t left = targets_of(run) - (*end - first) * settings_.seq;
      const auto places = static_cast<uint64_t>(std::clamp<int64_t>(left + 1, 1, settings_.seq));
      Philox random = random_stream(request.seed, Purpose::kWindow, request.epoch);
      random.set_offset(16 * number);
      begin += static_cast<int64_t>(random.below(places));
    }
    const auto size = static_cast<int64_t>(run.tokens.size());
    return run.tokens.subspan(static_cast<size_t>(begin),
                              static_cast<size_t>(std::min(settings_.seq + 1, size - begin)));
  }

  std::vector<TokenRun<Token>> runs_;
  std::vector<int64_t> ends_;  // of each run's windows in the count of all
  WindowSettings settings_;
};

}  // namespace

template <typename Token>
std::shared_ptr<const Dataset> make_windows(std::vector<TokenRun<Token>> runs,
                                            const WindowSettings& settings, double& counted) {
  if (settings.max_samples > 0) keep_first(settings.max_samples, settings.seq, runs);
  return std::make_shared<WindowDataset<Token>>(std::move(runs), settings, counted);
}

template std::shared_ptr<const Dataset> make_windows(std::vector<TokenRun<int32_t>>,
                                                     const WindowSettings&, double&);
template std::shared_ptr<const Dataset> make_windows(std::vector<TokenRun<uint16_t>>,
                                                     const WindowSettings&, double&);
template std::shared_ptr<const Dataset> make_windows(std::vector<TokenRun<uint32_t>>,
                                                     const WindowSettings&, double&);

}  // namespace lumen::data
