// Documents made from a CLI11 command line, so that they cannot disagree with it.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace lumen::runtime {

// Commands and what they do; environment variables and what they are for.
using Examples = std::vector<std::pair<std::string, std::string>>;
using Variables = std::vector<std::pair<std::string, std::string>>;

// The group of options that are too rarely needed for --help, which is one screen: it has only
// their names.
inline constexpr const char* kRareOptions = "More, in the man page";

// --help: one line per option, at most 100 columns.
std::string help_text(const CLI::App& app);

// `text` as a man page (roff) shows it.
std::string roff(std::string text);

// A phrase of help with a capital.
std::string capitalized(std::string help);

// The same as a sentence: with a full stop too.
std::string sentence(std::string help);

// A man page, section 1. `variables` are the tool's own: those that all tools read are there
// anyway.
std::string man_page(const CLI::App& app, const Examples& examples, const Variables& variables);

// Completion scripts; options that take a FILE, DIR or MODEL complete file names, those that take
// "a|b" complete these words.
std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

}  // namespace lumen::runtime
