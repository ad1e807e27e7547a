// Vocabularies from before tokenizer.json: translated into what tokenizer.json would say.
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/text/tokenizer_formats.h"

namespace lumen::text {
namespace {

// Calls line(text, number) for every line, without its end.
template <typename Line>
void for_each_line(std::string_view text, Line&& line) {
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view one = text.substr(0, end);
    if (one.ends_with('\r')) one.remove_suffix(1);
    line(one, number++);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

io::Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", use_regex}};
}

// GPT-2's byte-level BPE, or Qwen2's with its own split.
io::Json describe_bpe(const std::string& directory, const TokenizerConfig& config) {
  io::Json merges = io::Json::array();
  for_each_line(io::read_file(directory + "/merges.txt", limits::kTokenizerBytes),
                [&](std::string_view line, int64_t number) {
                  const bool comment = number == 0 && line.starts_with("#version");
                  if (!line.empty() && !comment) merges.push_back(std::string(line));
                });
  io::Json json = {{"model", {{"type", "BPE"}, {"merges", std::move(merges)}}},
                   {"decoder", byte_level(true)}};
  json["model"]["vocab"] = io::read_json(directory + "/vocab.json");
  if (io::get_string(config.config, "tokenizer_class", "").starts_with("Qwen2")) {
    json["normalizer"] = {{"type", "NFC"}};
    const std::string pattern =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
        R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
    const io::Json split = {{"type", "Split"},
                            {"pattern", {{"Regex", pattern}}},
                            {"behavior", "Isolated"},
                            {"invert", false}};
    json["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", io::Json::array({split, byte_level(false)})}};
  } else {
    json["pre_tokenizer"] = byte_level(true);
  }
  return json;
}

// BERT: one token per line.
io::Json describe_bert(const std::string& directory, const TokenizerConfig& config) {
  io::Json vocabulary = io::Json::object();
  auto& entries = vocabulary.get_ref<io::Json::object_t&>();
  for_each_line(io::read_file(directory + "/vocab.txt", limits::kTokenizerBytes),
                [&](std::string_view line, int64_t number) {
                  entries.emplace_back(std::string(line), number);
                });
  const auto id_of = [&](const char* token) -> io::Json {
    for (const auto& [text, id] : entries) {
      if (text == token) return id;
    }
    fail(ErrorKind::kMalformed, "vocab.txt has no token ", token);
  };
  const io::Json lower = io::get_bool(config.config, "do_lower_case", true);
  return {{"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}}},
          {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", lower}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor",
           {{"type", "BertProcessing"},
            {"cls", io::Json::array({"[CLS]", id_of("[CLS]")})},
            {"sep", io::Json::array({"[SEP]", id_of("[SEP]")})}}},
          {"decoder", {{"type", "WordPiece"}}}};
}

}  // namespace

io::Json legacy_tokenizer_json(const std::string& directory, const TokenizerConfig& config) {
  const bool is_bpe = io::is_regular_file(directory + "/merges.txt");
  return is_bpe ? describe_bpe(directory, config) : describe_bert(directory, config);
}

}  // namespace lumen::text
