// What the configs of models with Mamba-2 say of it, in keys of their own.
#pragma once

#include "lib/nn/decoder.h"

namespace lumen::models {

// What a family calls the sizes of Mamba-2 and its activation.
struct Mamba2Keys {
  const char *heads, *head_dim, *groups, *state, *kernel, *conv_bias, *activation;
};

// Mamba-2 with these sizes, the norm's eps that all norms have, and the limits of time steps that
// time_step_limit says: [least, most], where the latter may be endless. Throws Error(kMalformed)
// for sizes and limits that do not fit and Error(kUnsupported) for another activation.
nn::Mamba2Shape mamba2_of(const io::Json& json, const nn::DecoderConfig& config,
                          const Mamba2Keys& keys);

}  // namespace lumen::models
