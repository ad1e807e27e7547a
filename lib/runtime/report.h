// What a run was like, for people.
#pragma once

#include <string>

#include "lib/runtime/session.h"

namespace lumen::runtime {

// Some lines: speeds, counts, sampling, memory, threads, instruction set.
std::string describe(const Session& session, const GenerationResult& result,
                     const SamplingSettings& settings);

// Some lines: name, format, size, vocabulary, end tokens and where they come from, memory.
std::string describe_model(const Session& session);

}  // namespace lumen::runtime
