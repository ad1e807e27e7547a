// The recipes that are compiled in: recipes/*.toml of the source tree.
#pragma once

#include <span>
#include <string_view>

namespace lumen::runtime {

struct BundledRecipe {
  std::string_view name, text;

  // What it trains: the first sentence of the comment it begins with.
  std::string_view purpose() const;
};

// In the order of recipes/meson.build.
std::span<const BundledRecipe> bundled_recipes();

}  // namespace lumen::runtime
