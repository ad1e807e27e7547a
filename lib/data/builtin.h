// What Lumen brings along so that every recipe runs without a download. All of it is made by code
// of this project from its own words; the same on every machine.
#pragma once

#include <string>
#include <string_view>

namespace lumen::data {

inline constexpr std::string_view kStorySeparator = "\n\n";

// Whether `path` names something built in: "builtin:stories", ….
bool is_builtin(std::string_view path);

// Its content. Throws Error(kMissing) with the names that exist.
//   stories  about 100 kB of short stories in plain English, separated by kStorySeparator
//   names    3000 invented first names, one per line
//   lumen-tiny  questions about Lumen with their answers, of recipes/lumen-tiny/
//   chat     400 lines {"messages": [user, assistant]} of small tasks
std::string builtin_text(std::string_view path);

// All of them; the last is compiled in from the files (recipes/meson.build).
std::string make_stories();
std::string make_names();
std::string make_chat();
std::string make_lumen_tiny();

}  // namespace lumen::data
