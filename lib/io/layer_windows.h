// Which layers of a Qwen model attend to a sliding window only.
#pragma once

#include <vector>

#include "lib/io/json.h"

namespace lumen::io {

// The window of each layer in tokens; 0: all positions. `config` as ModelFiles::config, of a model
// whose layers need not be alike (Qwen2, Qwen3): a layer has the window sliding_window where
// layer_types calls it "sliding_attention", without such a list from max_window_layers on. Throws
// Error(kMalformed) for a list of another length than num_hidden_layers and Error(kUnsupported) for
// another type of layer.
std::vector<int64_t> layer_windows(const Json& config);

}  // namespace lumen::io
