#include "lib/runtime/training/least_loss.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace lumen::runtime {

double least_loss(const data::Batch& batch) {
  const auto tokens = batch.fields.find("tokens");
  if (tokens == batch.fields.end()) return 0;
  const auto segments = batch.fields.find("segments");
  const auto ids = tokens->second.as<int32_t>();
  const auto targets = batch.fields.at("targets").as<int32_t>();
  const auto width = static_cast<size_t>(tokens->second.shape()[1]);
  // A tree of the beginnings; the root is 0.
  std::map<std::pair<size_t, int32_t>, size_t> children;
  std::map<size_t, std::map<int32_t, double>> followers;
  size_t node = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    bool begins = i % width == 0;
    if (segments != batch.fields.end() && !begins) {
      const auto segment = segments->second.as<int32_t>();
      begins = segment[i] != segment[i - 1];
    }
    node = children.try_emplace({begins ? 0 : node, ids[i]}, children.size() + 1).first->second;
    if (targets[i] != data::kIgnored) ++followers[node][targets[i]];
  }
  double loss = 0, count = 0;
  for (const auto& [place, targets_there] : followers) {
    double all = 0;
    for (const auto& [target, times] : targets_there) all += times;
    for (const auto& [target, times] : targets_there) loss -= times * std::log(times / all);
    count += all;
  }
  return loss / std::max(count, 1.0);
}

}  // namespace lumen::runtime
