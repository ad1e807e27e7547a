// What the options and keys of other tools are called in ours.
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

// What a key of a request is called in a line of a batch that other tools and APIs call `key`:
// "max_tokens"; "" if it is not known.
std::string foreign_key(std::string_view key);

}  // namespace lumen::runtime
