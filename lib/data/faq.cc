// Questions with their answers, as people keep them in a text file.
#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/random.h"
#include "lib/data/language.h"

namespace lumen::data {
namespace {

// The entries of one block of lines.
std::vector<FaqEntry> parse_block(const std::vector<TextLine>& lines) {
  std::vector<FaqEntry> entries;
  std::string_view answer;
  bool empty = true;  // but for remarks
  for (const TextLine& line : lines) {
    check_utf8(line);
    if (line.text.starts_with('#')) continue;
    empty = false;
    const std::string_view kind = line.text.substr(0, 3),
                           value = line.text.size() > 3 ? line.text.substr(3) : std::string_view();
    const bool known = kind == "Q: " || kind == "H: " || kind == "A: " || kind == "F: ";
    if (!known || value.empty()) {
      fail_at(line, 0, "expected a line that begins with \"Q: \", \"H: \", \"A: \", \"F: \" or #");
    }
    if (kind == "A: ") {
      answer = value;
    } else if (kind != "F: ") {
      entries.push_back({value, {}, kind == "H: ", line.number});
    }
  }
  if (!empty && (entries.empty() || answer.empty())) {
    fail_at(lines.back(), 0,
            str("the block that ends here has no ",
                entries.empty() ? "question (\"Q: …\")" : "answer (\"A: …\")"));
  }
  for (FaqEntry& entry : entries) entry.answer = answer;
  return entries;
}

}  // namespace

std::vector<FaqEntry> parse_faq(std::string_view text, BadRows& bad, SourceFile& file) {
  std::vector<FaqEntry> all;
  std::vector<TextLine> block;
  const auto finish = [&] {
    bad.guard(file, [&] {
      const std::vector<FaqEntry> entries = parse_block(block);
      all.insert(all.end(), entries.begin(), entries.end());
    });
    block.clear();
  };
  for_each_line(text, [&](const TextLine& line) {
    // A blank line lies between.
    if (!block.empty() && line.number != block.back().number + 1) finish();
    block.push_back(line);
  });
  finish();
  return all;
}

namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// A question in lower case as a sentence: "what is lumen" as "What is Lumen?".
std::string sentence(std::vector<std::string> words) {
  constexpr std::string_view kAsking[] = {"are",   "can", "could",  "do",   "does", "how",
                                          "is",    "may", "should", "what", "when", "where",
                                          "which", "who", "why",    "will"};
  if (words.empty()) return "";
  const bool asks = std::ranges::find(kAsking, words.front()) != std::end(kAsking);
  for (std::string& word : words) {
    if (word.starts_with("lumen") && !word.starts_with("lumen-")) word[0] = 'L';
  }
  char& first = words.front().front();
  if (first >= 'a' && first <= 'z' && !words.front().starts_with("lumen-")) {
    first = static_cast<char>(first - 'a' + 'A');
  }
  return join(words, " ") + (asks ? "?" : "");
}

// All strings of a JSON value, deepest last.
void collect_strings(const io::Json& value, std::string& out) {
  std::vector<const io::Json*> pending = {&value};
  while (!pending.empty()) {
    const io::Json* at = pending.back();
    pending.pop_back();
    if (at->is_string()) {
      out += at->get_ref<const std::string&>();
      out += '\n';
    } else if (at->is_structured()) {
      for (const io::Json& member : *at) pending.push_back(&member);
    }
  }
}

}  // namespace

void add_variants(const FaqEntry& entry, uint64_t seed, std::vector<std::string>& questions) {
  std::string plain(entry.question);
  for (char& c : plain) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  while (!plain.empty() && (plain.back() == '?' || plain.back() == '.' || plain.back() == '!')) {
    plain.pop_back();
  }
  questions.push_back(plain);
  const std::vector<std::string> words = words_of(plain);
  if (std::string as_sentence = sentence(words); as_sentence != plain) {
    questions.push_back(std::move(as_sentence));
  }
  if (words.size() < 4) return;
  Philox random(seed, static_cast<uint64_t>(entry.number));
  for (int i = 0; i < 3; ++i) {
    std::vector<std::string> changed = words;
    const size_t at = random.below(words.size());
    if (random.below(4) == 0 && at + 1 < words.size()) {
      std::swap(changed[at], changed[at + 1]);
    } else {
      changed.erase(changed.begin() + static_cast<ptrdiff_t>(at));
    }
    questions.push_back(join(changed, " "));
  }
}

std::vector<std::string> read_texts(const DataOptions& options) {
  std::vector<std::string> texts;
  for (const std::string& path : expand_paths(options.paths)) {
    SourceFile file;
    const Source source = read_source(path, limits::kDataUnpackedBytes, file);
    with_context(source.place(), [&] {
      std::string words;
      DatasetInfo unused;  // reading the data themselves reports what is bad
      BadRows bad(options.on_bad_row, unused);
      if (options.format == Format::kJsonl) {
        for_each_json_row(source.text(), [&](const TextLine& line) {
          bad.guard(file, [&] { collect_strings(parse_json_row(line), words); });
        });
      } else if (options.format == Format::kFaq) {
        for (const FaqEntry& entry : parse_faq(source.text(), bad, file)) {
          words += str(entry.question, "\n", entry.answer, "\n");
        }
      } else {
        words = checked_text(source, bad, file);
      }
      texts.push_back(std::move(words));
    });
  }
  return texts;
}

}  // namespace lumen::data
