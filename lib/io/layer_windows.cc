#include "lib/io/layer_windows.h"

#include "lib/base/error.h"
#include "lib/base/limits.h"

namespace lumen::io {

std::vector<int64_t> layer_windows(const Json& config) {
  const auto layers = static_cast<size_t>(get_int(config, "num_hidden_layers", 1, limits::kLayers));
  const int64_t window = get_int(config, "sliding_window", 0, limits::kContext, 0);
  std::vector<int64_t> windows(layers);
  const Json* types = find_value(config, "layer_types");
  if (types == nullptr) {
    const auto full =
        static_cast<size_t>(get_int(config, "max_window_layers", 0, limits::kLayers, 0));
    for (size_t layer = full; layer < layers; ++layer) windows[layer] = window;
    return windows;
  }
  if (!types->is_array() || types->size() != layers) {
    fail(ErrorKind::kMalformed, "layer_types: found ", describe(types), ", expected an array of ",
         layers, " names, one per layer");
  }
  for (size_t layer = 0; layer < layers; ++layer) {
    const Json& type = (*types)[layer];
    if (type == "sliding_attention") {
      windows[layer] = window;
    } else if (type != "full_attention") {
      fail(ErrorKind::kUnsupported, "layer_types: layer ", layer, " is ", describe(&type),
           "; known: full_attention, sliding_attention");
    }
  }
  return windows;
}

}  // namespace lumen::io
