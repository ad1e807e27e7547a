// Windows over long texts: rows of `seq` tokens cut wherever they fall.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/data/data.h"
#include "lib/tensor/array.h"

namespace lumen::data {

// Tokens that follow each other: of one text, or of one .bin file. They may lie in a mapped file.
template <typename Token>
struct TokenRun {
  std::span<const Token> tokens;
  std::shared_ptr<const void> owner;  // keeps them in memory
};

struct WindowSettings {
  int64_t seq = 0;
  // Every epoch the cuts fall elsewhere, at most seq − 1 tokens of a run's beginning and end being
  // left out; else windows begin at the run's beginning and the last one is padded.
  bool moving = false;
  int64_t max_samples = 0;  // only the first so many windows of all runs together; 0: all
};

// Windows over `runs`, each of at least two tokens; every target is in at most one of an epoch.
// `counted` receives the targets of an epoch. Token: uint16_t, uint32_t (below 2³¹), int32_t.
template <typename Token>
std::shared_ptr<const Dataset> make_windows(std::vector<TokenRun<Token>> runs,
                                            const WindowSettings& settings, double& counted);

}  // namespace lumen::data
