// What Tab makes of a command's line, and names of files as they are typed there.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::runtime {

// What the end of a line may become: its text from `begin` on is the beginning of each of `words`.
struct Completion {
  size_t begin = 0;
  std::vector<std::string> words;  // sorted; one that is complete ends in a space
};
using Completer = std::function<Completion(std::string_view line)>;

// The longest text that all of `words` begin with, of whole characters; "" for none.
std::string common_beginning(const std::vector<std::string>& words);

// Those of `words` that the end of `line`, from `begin` on, is the beginning of, each with a space.
Completion complete_word(std::string_view line, size_t begin,
                         const std::vector<std::string>& words);

// The names of files that the last name of `line` may become, whose names begin at `begin`, typed
// as split_names reads them: directories end in /, other files in a space, and hidden ones come
// only where the name begins with a point. Names with control characters or that are no UTF-8 are
// left out. Nothing for a directory that cannot be read.
Completion complete_file(std::string_view line, size_t begin);

// The names of files in `text`, as a shell has them: 'a b', "a b" and a\ b are one name each.
std::vector<std::string> split_names(std::string_view text);

// `name` with the home directory for "~/" at its beginning.
std::string at_home(const std::string& name);

}  // namespace lumen::runtime
