// What files of Qwen's models that see images say of the positions of what is seen. Keys:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <numeric>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf_families.h"

namespace lumen::io {
namespace {

constexpr const char *kSections = "rope.dimension_sections", *kOwnSections = "mrope_section";
constexpr const char* kDeepstack = "n_deepstack_layers";  // in a config, too

void require_no_windows(const Json& config) {
  require_windows(config, gguf_architecture(config), nullptr);
}

}  // namespace

void read_sections(const ArchitectureKeys& keys, Json& config) {
  if (!keys.has(kSections)) return;
  const std::vector<int64_t> sections = keys.list(kSections, 4, limits::kDim);
  if (sections[3] != 0) {
    fail(ErrorKind::kUnsupported, gguf_architecture(config), ".", kSections, ": a fourth section, ",
         sections[3], ", is not supported; known are time, height and width");
  }
  config[kOwnSections] = {sections[0], sections[1], sections[2]};
}

void write_sections(const Json& config, double time, const KeyWriter& keys) {
  const double rotated = get_number(config, "partial_rotary_factor", 0, 1, 1) *
                         static_cast<double>(get_int(config, "head_dim", 1, limits::kDim));
  const auto pairs = static_cast<int32_t>(rotated / 2 + 1e-6);
  std::vector<int32_t> sections;
  if (const Json* own = find_value(config, kOwnSections)) {
    const auto is_count = [](const Json& value) {
      return value.is_number_integer() && value >= 0 && value <= limits::kDim;
    };
    if (own->is_array() && std::ranges::all_of(*own, is_count)) {
      sections = own->get<std::vector<int32_t>>();
    }
    if (sections.size() != 3 || std::accumulate(sections.begin(), sections.end(), 0) != pairs) {
      fail(ErrorKind::kMalformed, kOwnSections, ": found ", describe(own),
           ", expected three numbers that add up to ", pairs, ", the pairs of a head that rotate");
    }
  } else {
    const auto first = static_cast<int32_t>(time * pairs + 1 - 1e-6);
    const int32_t width = (pairs - first) / 2;
    sections = {first, pairs - first - width, width};
  }
  sections.push_back(0);
  keys.set(kSections, sections);
}

void write_qwen2vl(const Json& config, const KeyWriter& keys) {
  require_no_windows(config);
  write_sections(config, 0.25, keys);
}

void read_qwen3vl(const ArchitectureKeys& keys, Json& config) {
  read_sections(keys, config);
  if (keys.has(kDeepstack)) config[kDeepstack] = keys.integer(kDeepstack, limits::kLayers, 0);
}

void write_qwen3vl(const Json& config, const KeyWriter& keys) {
  write_sections(config, 0.375, keys);
  if (find_value(config, kDeepstack) == nullptr) return;
  keys.integer(kDeepstack, get_int(config, kDeepstack, 0, limits::kLayers));
}

void read_qwen3vlmoe(const ArchitectureKeys& keys, Json& config) {
  read_qwen3vl(keys, config);
  read_qwen3moe(keys, config);
}

void write_qwen3vlmoe(const Json& config, const KeyWriter& keys) {
  write_qwen3vl(config, keys);
  write_qwen3moe(config, keys);
}

}  // namespace lumen::io
