// A pre-tokenizer is a list of patterns: each in turn cuts its matches out of the parts that the
// ones before have left. The patterns are those of the models' own tokenizer files, which llama.cpp
// has too, some in a form that differs in detail: words of o200k's, Tekken's and Kimi K2's are
// divided there by the case of ASCII letters alone or not at all, and end before combining marks. A
// final "|\s+" that changes nothing is left away.
#include "lib/text/gguf_pre_tokenizer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "lib/base/error.h"

namespace lumen::text {
namespace {

using Patterns = std::vector<std::string>;

// Apostrophe endings of English, in ASCII only.
const std::string kEndings = R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))";
const std::string kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
const std::string kSpaceTail = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The same with spaces in pieces whose lengths are powers of two.
const std::string kSpaceHalves =
    R"(|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S))"
    R"(|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
const std::string kWordsAndDigits = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
const std::string kOther = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)";

// cl100k-like, with numbers of up to three digits or single ones.
const std::string kLlama3 = kEndings + "|" + kWordsAndDigits + "{1,3}" + kOther + kSpaceTail;
const std::string kQwen2 = kEndings + "|" + kWordsAndDigits + kOther + kSpaceTail;
// The same with marks as parts of words.
const std::string kQwen35 = kEndings +
                            R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
                            R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" +
                            kSpaceTail;

// Words split where upper case follows lower case; `ending` may follow words, `line` other
// characters. Letters and marks are those that `of` does not exclude.
std::string cased_words(const std::string& ending, const std::string& number,
                        const std::string& line = R"([\r\n/]*)", const std::string& of = "") {
  const auto letters = [&](const std::string& kind) {
    const std::string all = R"([\p{)" + kind + R"(}\p{Lm}\p{Lo}\p{M}])";
    return of.empty() ? all : "(?:" + of + all + ")";
  };
  const std::string upper = letters(R"(Lu}\p{Lt)"), lower = letters("Ll");
  const std::string lead = R"([^\r\n\p{L}\p{N}]?)";
  return lead + upper + "*" + lower + "+" + ending + "|" + lead + upper + "+" + lower + "*" +
         ending + "|" + number + R"(| ?[^\s\p{L}\p{N}]+)" + line + kSpaceTail;
}
const std::string kO200k = cased_words(kEndings + "?", R"(\p{N}{1,3})");

const std::string kDeepseekWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+)";
const std::string kDeepseekV3 = kDeepseekWords + R"([\r\n]*)" + kSpaceTail;
const std::string kCjk = R"([一-龥぀-ゟ゠-ヿ]+)";
const std::string kCjkHangul = R"([一-龥ࠀ-一가-퟿]+)";

// The cased letters of deepseek-llm's own list (clang-format measures them differently each time).
// Those that editors compose to others are escaped.
// clang-format off
const std::string kDeepseekLetters =
    "[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-"
    "ᴫᵫ-"
    "ᵷᵹ-"
    "ᶚḀ-ἕἘ-Ἕ"
    "ἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1F7Dᾀ-ᾴᾶ-ᾼ\u1FBEῂ-ῄῆ-ῌῐ-\u1FD3ῖ-\u1FDBῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212A-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭ"
    "Ꚁ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-"
    "𐳲𑢠-"
    "𑣟𞤀-"
    "𞥃]";
// clang-format on

// Scripts that Trinity's words have no spaces between; escaped, as some of them are composed.
const std::string kAsian =
    "[\u4E00-\u9FFF\u3400-\u4DBF\uF900-\uFAFF\u3040-\u309F\u30A0-\u30FF"
    "\uFF65-\uFF9F\u2F00-\u2FDF\u0E40-\u0E7F\u0E80-\u0EFF\u1780-\u17FF"
    "\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF\uAC00-\uD7AF\u1100-\u11FF]+";

struct Family {
  Patterns patterns;
  std::vector<std::string_view> names;  // the first is the one to write
  bool ignore_merges = false, add_bos = false, add_sep = false;
};

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {{R"([\p{P}$+<=>^~|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}, {"default"}},
      {{kGpt2},
       {"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "mpt",
        "olmo", "jais", "a.x-4.0", "mellum", "modern-bert", "exaone4", "trillion",
        "granite-docling"}},
      {{kGpt2}, {"jina-v1-en", "jina-v2-code", "roberta-bpe"}, false, false, true},
      {{R"(\p{N})", kGpt2},
       {"smollm", "starcoder", "refact", "command-r", "cohere2_moe", "codeshell", "exaone",
        "minerva-7b", "mellum2"}},
      {{kLlama3},
       {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
        "jina-v5-nano"},
       true,
       true},
      {{kLlama3}, {"dbrx", "smaug-bpe", "chatglm-bpe"}},
      {{kLlama3}, {"glm4", "glm5"}, true},
      {{R"(\p{N}{1,3})", kEndings + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+)" + kOther + kSpaceTail},
       {"minicpm5"},
       true},
      {{kQwen2},
       {"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "grok-2", "solar-open",
        "kormo", "f2llmv2"}},
      {{kEndings + "|" + kWordsAndDigits + "{1,3}" + kOther + kSpaceHalves}, {"jais-2"}},
      // Without endings of English, so that Turkish ones stay whole.
      {{kWordsAndDigits + kOther + kSpaceTail}, {"ufakzeka"}},
      {{kQwen35}, {"qwen35"}},
      {{cased_words("", R"(\p{N})")}, {"tekken"}, true, true},
      {{kO200k}, {"gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"}},
      // Digits in threes from the right.
      {{R"(\d{1,3}(?=(?:\d{3})*\b))", kO200k}, {"tiny_aya", "cohere2moe"}},
      {{R"(\p{Han}+|)" +
        cased_words(kEndings + "?", R"(\p{N}{1,3})", R"([\r\n]*)", R"((?!\p{Han}))")},
       {"kimi-k2"}},
      {{R"([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|)" + kCjk,
        cased_words(kEndings + "?", R"(\p{N})")},
       {"youtu"},
       true},
      // Words with one space between them are one.
      {{kEndings + R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
                   R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"},
       {"exaone-moe"}},
      {{R"([\r\n])", R"(\s?)" + kDeepseekLetters + "+", R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
        R"((?<!\s)\s++\z)", kCjkHangul, R"(\p{N}+)"},
       {"deepseek-llm"}},
      {{R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kCjkHangul, R"(\p{N})"}, {"deepseek-coder"}},
      {{R"(\p{N}{1,3})", kCjk, kDeepseekV3},
       {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}},
      // Digits and line ends are words of their own.
      {{R"(\p{N}{1,3})", kCjk, kDeepseekWords + R"(|[\r\n]|\s+(?!\S)|\s+)", R"(\p{N})"},
       {"spark2_5"}},
      {{R"([\p{P}$+<=>^~|`]+)", kGpt2, "[0-9][0-9][0-9]"}, {"falcon"}},
      {{R"( ?[^(\s|.,!?…。，、।۔،)]+)"}, {"bloom", "poro-chat", "gpt3-finnish"}},
      {{R"( ?[^(\s|.,!?…。，、।۔،)]+)", R"(\p{N})"}, {"viking"}},
      {{"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", R"([\t\n]|    |  )", R"(\p{N})",
        R"([\p{P}!-/:-@\[-`{-~])", kGpt2},
       {"chameleon"},
       false,
       true},
      {{kEndings + "|" + kWordsAndDigits + R"(| ?[^\s\p{L}\p{N}\r\n]+)" + kSpaceTail},
       {"seed-coder"}},
      {{R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))", kAsian, kDeepseekV3}, {"afmoe"}},
      {{kEndings + "|" + kWordsAndDigits + kOther + R"(|\s*[\r\n]|\s+(?!\S)|\s+)"},
       {"bailingmoe", "bailingmoe2", "llada-moe"}},
      // All between numbers is one word, and digits are in threes from the right.
      {{R"(\p{N}+)", "[0-9]{1,3}(?=(?:[0-9]{3})*(?![0-9]))"}, {"superbpe"}},
      {{R"([^\n]+|\n+)", kQwen2}, {"laguna"}},
  };
  return kFamilies;
}

std::unique_ptr<PreTokenizer> make_split(const Patterns& patterns) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const std::string& pattern : patterns) {
    parts.push_back(make_regex_split(pattern, SplitBehavior::kIsolated));
  }
  parts.push_back(make_byte_spelling());
  return make_pre_tokenizer_sequence(std::move(parts));
}

// A text in which what the splits distinguish stands in all kinds of neighbourhoods.
std::string varied_text() {
  constexpr std::string_view kPieces[] = {
      "a",  "b",    "B",    "C",      "é",      "É",      "ж",        "'s",          "'T", "'ll",
      "'",  "1",    "23",   "4567",   "٣",      "²",      "Ⅷ",        " ",           "  ", "   ",
      "\n", "\r\n", "\t",   ".",      ",",      "!",      "-",        "(",           "/",  "$",
      "+",  "<",    "^",    "|",      "_",      "`",      "\\",       "…",           "，", "東",
      "ひ", "한",   "🙂", "\u0301", "\u00A0", "\u3000", "IMGIMGAZ", "<sentinel:1>"};
  constexpr int kCount = 30'000;
  std::string text;
  uint32_t state = 1;
  for (int i = 0; i < kCount; ++i) {
    state = state * 1664525 + 1013904223;  // Numerical Recipes' linear congruential generator
    text += kPieces[(state >> 16) % std::size(kPieces)];
  }
  return text;
}

Words split_by(const PreTokenizer& split, const std::string& text) {
  Words words;
  words.text = text;
  words.spans.push_back({0, static_cast<uint32_t>(text.size())});
  split.apply(words);
  return words;
}

bool same_words(const Words& a, const Words& b) {
  return a.text == b.text &&
         std::equal(a.spans.begin(), a.spans.end(), b.spans.begin(), b.spans.end(),
                    [](auto x, auto y) { return x.begin == y.begin && x.end == y.end; });
}

}  // namespace

GgufPreTokenizer gguf_pre_tokenizer(std::string_view name) {
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (std::find(family.names.begin(), family.names.end(), name) == family.names.end()) {
      known.insert(known.end(), family.names.begin(), family.names.end());
      continue;
    }
    return {make_split(family.patterns), family.patterns, family.ignore_merges, family.add_bos,
            family.add_sep};
  }
  const std::string nearest_name = nearest(name, known);
  fail(ErrorKind::kUnsupported, "tokenizer.ggml.pre is ", quoted(name),
       ", a pre-tokenizer that is not known",
       nearest_name.empty() ? "" : str("; did you mean ", nearest_name, "?"));
}

std::string gguf_pre_tokenizer_name(const PreTokenizer& split, bool ignore_merges) {
  const std::string text = varied_text();
  const Words wanted = split_by(split, text);
  std::string_view nearly;  // with another rule for merges, which hardly a vocabulary tells apart
  for (const Family& family : families()) {
    const bool is_exact = family.ignore_merges == ignore_merges;
    if (!is_exact && !nearly.empty()) continue;
    if (!same_words(split_by(*make_split(family.patterns), text), wanted)) continue;
    if (is_exact) return std::string(family.names.front());
    nearly = family.names.front();
  }
  return std::string(nearly);
}

}  // namespace lumen::text
