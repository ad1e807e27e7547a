#include "lib/runtime/chat/completion.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"

namespace lumen::runtime {
namespace {

// A name in a text, and how it is written there.
struct TypedName {
  std::string name;
  size_t begin = 0;   // in the text
  char quote = '\0';  // that it began with and that has not ended
};

std::vector<TypedName> typed_names(std::string_view text) {
  std::vector<TypedName> names;
  char quote = ' ';  // that ends the present piece
  bool is_inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '\\' && quote == ' ' && i + 1 < text.size();
    if (is_escape) ++i;
    if (!is_escape && text[i] == quote) {
      is_inside = quote != ' ';
      quote = ' ';
      if (!names.empty()) names.back().quote = '\0';
      continue;
    }
    const bool begins = !is_inside;
    is_inside = true;
    if (begins) names.push_back({"", is_escape ? i - 1 : i});
    if (begins && !is_escape && (text[i] == '\'' || text[i] == '"')) {
      names.back().quote = quote = text[i];
    } else {
      names.back().name += text[i];
    }
  }
  return names;
}

// `name` as typed_names reads it, in the quotes that it has.
std::string typed(const std::string& name, char quote) {
  if (quote != '\0') return quote + name;
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '\\' || (out.empty() && (c == '\'' || c == '"'))) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string common_beginning(const std::vector<std::string>& words) {
  if (words.empty()) return "";
  std::string common = words.front();
  for (const std::string& word : words) {
    const auto end = std::mismatch(common.begin(), common.end(), word.begin(), word.end()).first;
    common.erase(end, common.end());
  }
  common.resize(common.size() - incomplete_utf8_suffix(common));
  return common;
}

Completion complete_word(std::string_view line, size_t begin,
                         const std::vector<std::string>& words) {
  Completion completion{begin, {}};
  for (const std::string& word : words) {
    if (word.starts_with(line.substr(begin))) completion.words.push_back(word + ' ');
  }
  std::ranges::sort(completion.words);
  return completion;
}

Completion complete_file(std::string_view line, size_t begin) {
  const auto names = typed_names(line.substr(begin));
  // After a space that ends a name, and after a quote that does, another begins.
  const bool is_new = names.empty() || (line.ends_with(' ') && names.back().quote == '\0' &&
                                        !names.back().name.ends_with(' '));
  const TypedName last = is_new ? TypedName{"", line.size() - begin} : names.back();
  const size_t slash = last.name.rfind('/') + 1;  // 0 without one
  const std::string directory = last.name.substr(0, slash), beginning = last.name.substr(slash);
  Completion completion{begin + last.begin, {}};
  std::error_code error;
  for (const std::string& name : io::names_in(slash == 0 ? "." : at_home(directory), error)) {
    if (!name.starts_with(beginning) || (beginning.empty() && name.starts_with('.'))) continue;
    if (printable(name, name.size()) != name) continue;
    const std::string path = directory + name;
    const bool is_directory = io::is_directory(at_home(path));
    std::string word = typed(path, last.quote);
    if (is_directory) {
      word += '/';
    } else {
      if (last.quote != '\0') word += last.quote;
      word += ' ';
    }
    completion.words.push_back(std::move(word));
  }
  return completion;
}

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  for (TypedName& name : typed_names(text)) names.push_back(std::move(name.name));
  return names;
}

std::string at_home(const std::string& name) {
  const char* home = std::getenv("HOME");
  return home != nullptr && name.starts_with("~/") ? home + name.substr(1) : name;
}

}  // namespace lumen::runtime
