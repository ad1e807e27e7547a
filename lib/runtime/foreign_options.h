// What the options of other tools are called in ours.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace lumen::runtime {

// What to do instead of `word`, an option that `app` lacks and tools of others have: "did you mean
// --ctx?"; "" if it is not known.
std::string foreign_option_hint(const CLI::App& app, std::string_view word);

// Whether `word` is such an option of several letters after one dash ("-ngl"), which would be read
// as one of ours with a value ("-n gl").
bool hides_short_option(std::string_view word);

}  // namespace lumen::runtime
