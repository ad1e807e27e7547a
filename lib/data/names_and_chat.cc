// The built-in list of names and the small conversations.
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/strings.h"
#include "lib/data/builtin.h"
#include "lib/data/shuffle.h"

namespace lumen::data {
namespace {

// Names are syllables: one that begins, up to two between, one that ends.
constexpr std::string_view kFirst[] = {
    "a",  "be", "bri", "ca", "da", "de", "e",   "el", "fa", "fi", "gal", "ha",
    "he", "i",  "ja",  "jo", "ka", "ke", "la",  "le", "li", "lo", "ma",  "mi",
    "na", "ne", "no",  "o",  "ol", "pe", "qui", "ra", "ro", "sa", "se",  "so",
    "ta", "te", "tho", "u",  "va", "vi", "wi",  "xa", "ya", "yo", "za",  "zo"};
constexpr std::string_view kMiddle[] = {"",   "",   "",    "la", "le", "li",  "lo", "ma", "mi",
                                        "na", "ne", "ni",  "ra", "re", "ri",  "ro", "sa", "se",
                                        "ta", "te", "tri", "vi", "xa", "bel", "da", "di"};
constexpr std::string_view kLast[] = {"n",   "na",  "nne", "ra",  "rin", "s",   "sa",  "th",
                                      "la",  "lla", "lo",  "mir", "mo",  "nia", "ro",  "ron",
                                      "ssa", "ta",  "tte", "vin", "x",   "ya",  "zel", "dan",
                                      "ck",  "lyn", "mar", "ne",  "l",   "ric"};

template <size_t n>
std::string_view random_word(const std::string_view (&words)[n], Philox& random) {
  return words[random.below(n)];
}

struct Exchange {
  std::string question, answer;
};

constexpr std::string_view kOpposites[][2] = {
    {"hot", "cold"},    {"big", "small"},  {"up", "down"},   {"early", "late"}, {"wet", "dry"},
    {"open", "closed"}, {"full", "empty"}, {"fast", "slow"}, {"light", "dark"}, {"old", "young"},
    {"soft", "hard"},   {"left", "right"}, {"happy", "sad"}, {"loud", "quiet"}, {"near", "far"}};
constexpr std::string_view kWords[] = {"apple", "boat", "cloud", "door",  "ear",   "fish", "goat",
                                       "house", "ink",  "jar",   "key",   "lamp",  "moon", "nest",
                                       "ocean", "pen",  "queen", "river", "stone", "tree"};

std::string with_article(std::string_view word) {
  return str(std::string_view("aeiou").find(word[0]) != std::string_view::npos ? "an " : "a ",
             word);
}

Exchange make_exchange(Philox& random) {
  switch (random.below(6)) {
    case 0: {
      const uint64_t a = random.below(10), b = random.below(10);
      return {random.below(2) == 0 ? str("What is ", a, " plus ", b, "?")
                                   : str("How much is ", a, " + ", b, "?"),
              str(a, " plus ", b, " is ", a + b, ".")};
    }
    case 1: {
      const auto& pair = kOpposites[random.below(std::size(kOpposites))];
      const uint64_t side = random.below(2);
      return {random.below(2) == 0 ? str("What is the opposite of ", pair[side], "?")
                                   : str("Tell me the opposite of ", pair[side], "."),
              str("The opposite of ", pair[side], " is ", pair[1 - side], ".")};
    }
    case 2: {
      const std::string_view word = random_word(kWords, random);
      return {str("How many letters does the word ", word, " have?"),
              str("The word ", word, " has ", word.size(), " letters.")};
    }
    case 3: {
      const std::string_view word = random_word(kWords, random);
      return {str("What is the first letter of ", word, "?"),
              str("The first letter of ", word, " is ", word[0], ".")};
    }
    case 4: {
      const uint64_t n = 1 + random.below(20);
      return {random.below(2) == 0 ? str("Which number comes after ", n, "?")
                                   : str("Count one further than ", n, "."),
              str("After ", n, " comes ", n + 1, ".")};
    }
    default: {
      const std::string_view word = random_word(kWords, random);
      return {str("Use the word ", word, " in a sentence."),
              str("Yesterday I saw ", with_article(word), " that I liked.")};
    }
  }
}

}  // namespace

std::string make_names() {
  constexpr size_t kCount = 3000;
  Philox random = random_stream(1, Purpose::kText, 0);
  std::set<std::string> seen;
  std::string text;
  while (seen.size() < kCount) {
    const std::string name = str(random_word(kFirst, random), random_word(kMiddle, random),
                                 random_word(kMiddle, random), random_word(kLast, random));
    if (name.size() < 3 || name.size() > 9 || !seen.insert(name).second) continue;
    text += name + "\n";
  }
  return text;
}

std::string make_chat() {
  constexpr int kCount = 400;
  Philox random = random_stream(2, Purpose::kText, 0);
  std::string text;
  for (int i = 0; i < kCount; ++i) {
    const Exchange exchange = make_exchange(random);
    text += str(R"({"messages": [{"role": "user", "content": ")", exchange.question,
                R"("}, {"role": "assistant", "content": ")", exchange.answer, "\"}]}\n");
  }
  return text;
}

}  // namespace lumen::data
