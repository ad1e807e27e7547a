// What a run was like, for people and for programs.
#pragma once

#include <string>

#include "lib/runtime/generation/session.h"
#include "lib/runtime/tool/profile.h"

namespace lumen::runtime {

// One line: the memory that loading will need, and what there is.
std::string describe(const MemoryPlan& memory);

// Some lines: speeds, counts, sampling, memory, threads, instruction set.
std::string describe(const Session& session, const GenerationResult& result,
                     const SamplingSettings& settings);

// Tables of where the time of an answer went: of its prompt, and of its tokens.
std::string describe(const GenerationProfile& profile, const Session& session,
                     const GenerationResult& result);

// An answer as --json prints it.
io::Json to_json(const Session& session, const GenerationResult& result,
                 const SamplingSettings& settings);

// Some lines: name, format, size, vocabulary, end tokens and where they come from, memory.
std::string describe_model(const Session& session);

}  // namespace lumen::runtime
