#include "lib/runtime/training/best_checkpoints.h"

#include <algorithm>
#include <utility>

namespace lumen::runtime {
namespace {

// Less is better.
double badness(const std::string& metric, double value) {
  return higher_is_better(metric) ? -value : value;
}

double badness(const std::string& metric, const io::CheckpointEntry& entry) {
  return badness(metric, entry.about["value"].get<double>());
}

}  // namespace

bool higher_is_better(std::string_view metric) {
  return metric.find("accuracy") != metric.npos;
}

std::vector<io::CheckpointEntry> best_checkpoints(const std::vector<io::CheckpointEntry>& entries,
                                                  const std::string& metric, int64_t last_step) {
  std::vector<io::CheckpointEntry> best;
  for (const io::CheckpointEntry& entry : entries) {
    const io::Json* value = io::find_value(entry.about, "value");
    const io::Json* name = io::find_value(entry.about, "metric");
    const bool has_value = value && value->is_number() && name && *name == metric;
    if (has_value && entry.step <= last_step) best.push_back(entry);
  }
  std::sort(best.begin(), best.end(), [&](const auto& a, const auto& b) {
    return std::pair(badness(metric, a), a.step) < std::pair(badness(metric, b), b.step);
  });
  return best;
}

int64_t count_as_good(const std::vector<io::CheckpointEntry>& entries, const std::string& metric,
                      double value) {
  return std::count_if(entries.begin(), entries.end(), [&](const io::CheckpointEntry& entry) {
    return badness(metric, entry) <= badness(metric, value);
  });
}

}  // namespace lumen::runtime
