#include "lib/runtime/training/describe_sample.h"

#include <algorithm>

#include "lib/base/strings.h"
#include "lib/data/batch.h"

namespace lumen::runtime {
namespace {

// The text of `run` where it stands behind `before`: alone it could lack the space before its first
// word.
std::string continuation(const text::Tokenizer& tokenizer, const std::vector<int32_t>& before,
                         const std::vector<int32_t>& run) {
  std::vector<int32_t> all = before;
  all.insert(all.end(), run.begin(), run.end());
  const std::string whole = tokenizer.decode(all), beginning = tokenizer.decode(before);
  // Not so only if a character's bytes are parted.
  return whole.starts_with(beginning) ? whole.substr(beginning.size()) : tokenizer.decode(run);
}

// What the learner is to see of a row: its text, or without a tokenizer its ids, with what does not
// count in ⟦ ⟧, as templates have the usual brackets.
std::string describe_tokens(const data::Batch& batch, int64_t row,
                            const text::Tokenizer* tokenizer) {
  const Array &tokens = batch.fields.at("tokens"), &targets = batch.fields.at("targets");
  const int64_t seq = tokens.shape()[1];
  const auto ids =
      tokens.as<int32_t>().subspan(static_cast<size_t>(row * seq), static_cast<size_t>(seq));
  const auto next =
      targets.as<int32_t>().subspan(static_cast<size_t>(row * seq), static_cast<size_t>(seq));
  // A token counts if the position before it has it as its target.
  std::string text;
  std::vector<int32_t> before, run;  // of one document
  bool learned = false;
  auto flush = [&] {
    if (run.empty()) return;
    std::string part;
    if (tokenizer != nullptr) {
      part = continuation(*tokenizer, before, run);
      before.insert(before.end(), run.begin(), run.end());
    } else {
      for (const int32_t id : run) part += (part.empty() ? "" : " ") + str(id);
      if (!text.empty()) text += ' ';
    }
    text += learned ? part : str("⟦", part, "⟧");
    run.clear();
  };
  const auto add = [&](int32_t id, bool counts) {
    if (counts != learned) flush();
    learned = counts;
    run.push_back(id);
  };
  const auto found = batch.fields.find("segments");
  const auto segment = [&](size_t i) {
    return found == batch.fields.end()
               ? 0
               : found->second.as<int32_t>()[static_cast<size_t>(row * seq) + i];
  };
  size_t end = ids.size();
  while (end > 0 && segment(end - 1) == data::kPadding) --end;
  for (size_t i = 0; i < end; ++i) {
    const bool begins = i == 0 || segment(i) != segment(i - 1);
    if (begins) {
      flush();
      before.clear();
    }
    add(ids[i], !begins && next[i - 1] == ids[i]);
    const bool ends = i + 1 == end || segment(i + 1) != segment(i);
    if (ends && next[i] != data::kIgnored) add(next[i], true);  // the last is only a target
  }
  flush();
  if (end < ids.size()) text += str("⟦… and ", ids.size() - end, " of padding⟧");
  return text;
}

}  // namespace

std::string describe_sample(const data::Batch& batch, int64_t row, const TrainingData& data) {
  if (batch.fields.count("tokens")) return describe_tokens(batch, row, data.tokenizer.get());
  const auto found = batch.fields.find("x");
  LUMEN_CHECK(found != batch.fields.end());
  const Array& y = batch.fields.at("y");
  std::string label = y.dtype() == DType::kI32 ? str(y.as<int32_t>()[static_cast<size_t>(row)])
                                               : str(y.as<float>()[static_cast<size_t>(row)]);
  const auto& classes = data.data.info.classes;
  if (y.dtype() == DType::kI32) {
    const auto index = static_cast<size_t>(y.as<int32_t>()[static_cast<size_t>(row)]);
    if (index < classes.size()) label = classes[index];
  }
  const int64_t size = found->second.elements() / found->second.shape()[0];
  const auto values =
      found->second.as<float>().subspan(static_cast<size_t>(row * size), static_cast<size_t>(size));
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return str(to_string(data.data.info.feature_shape), " from ", *low, " to ", *high, " → ", label);
}

}  // namespace lumen::runtime
