#include "lib/text/train/train_tokenizer.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/atomic_file.h"
#include "lib/text/train/trainers.h"

namespace lumen::text {
namespace {

bool is_sentencepiece(TokenizerKind kind) {
  return kind == TokenizerKind::kSentencePieceUnigram || kind == TokenizerKind::kSentencePieceBpe;
}

void check_texts(const Texts& texts) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    bytes += texts[i].size();
    if (!is_valid_utf8(texts[i])) {
      fail(ErrorKind::kMalformed, "tokenizer training: text ", i + 1,
           " is not UTF-8; convert it, or leave it out");
    }
  }
  if (bytes == 0) {
    fail(ErrorKind::kMalformed, "tokenizer training: there is no text to train on");
  }
  if (bytes > limits::kPromptBytes) {
    fail(ErrorKind::kResource, "tokenizer training: ", bytes, " bytes of text, the limit is ",
         limits::kPromptBytes, "; train on a part of it");
  }
}

void check_options(const TokenizerTraining& options) {
  if (options.vocab_size < 0 || options.vocab_size > static_cast<int64_t>(limits::kVocab)) {
    fail_option("vocab_size", "vocab_size is ", options.vocab_size, ", expected 0 to ",
                limits::kVocab);
  }
  if (options.vocab_size == 0 && options.kind != TokenizerKind::kCharacters) {
    fail_option("vocab_size", "vocab_size has to be given");
  }
  std::set<std::string> seen;
  for (const std::string& token : options.special_tokens) {
    if (token.empty() || token.size() > limits::kPieceBytes || !is_valid_utf8(token) ||
        !seen.insert(token).second) {
      fail_option("special_tokens", "the special token ", quoted(token),
                  " is empty, too long, not UTF-8 or named twice");
    }
  }
  for (const auto& [role, token] : {std::pair<const char*, const std::string&>{"bos", options.bos},
                                    {"eos", options.eos},
                                    {"pad", options.pad}}) {
    const bool built_in =
        is_sentencepiece(options.kind) && (token == "<s>" || token == "</s>" || token == "<unk>");
    if (!token.empty() && !built_in && seen.count(token) == 0) {
      fail(ErrorKind::kUsage, "tokenizer training: ", role, " is ", quoted(token),
           ", which is not among the special tokens");
    }
  }
}

std::string config_json(const TokenizerTraining& options) {
  const bool sentencepiece = is_sentencepiece(options.kind);
  std::string bos = options.bos, eos = options.eos;
  if (sentencepiece && bos.empty()) bos = "<s>";
  if (sentencepiece && eos.empty()) eos = "</s>";
  io::Json config = io::Json::object();
  config["tokenizer_class"] = "PreTrainedTokenizerFast";  // takes tokenizer.json as it is
  config["clean_up_tokenization_spaces"] = false;
  config["add_bos_token"] = !options.bos.empty();
  config["add_eos_token"] = false;
  if (!bos.empty()) config["bos_token"] = bos;
  if (!eos.empty()) config["eos_token"] = eos;
  if (!options.pad.empty()) config["pad_token"] = options.pad;
  if (sentencepiece) config["unk_token"] = "<unk>";
  if (!options.chat_template.empty()) config["chat_template"] = options.chat_template;
  return config.dump(2) + "\n";
}

}  // namespace

void for_each_part(const Texts& texts, const std::vector<std::string>& special_tokens,
                   const std::function<void(std::string_view)>& visit) {
  for (std::string_view text : texts) {
    // Where each special token comes next.
    std::vector<size_t> next(special_tokens.size(), 0);
    size_t begin = 0;
    for (size_t i = 0; i < next.size(); ++i) next[i] = text.find(special_tokens[i]);
    while (begin < text.size()) {
      size_t end = text.size(), skip = 0;
      for (size_t i = 0; i < next.size(); ++i) {
        if (next[i] != text.npos && next[i] < begin) next[i] = text.find(special_tokens[i], begin);
        const bool longer = next[i] == end && special_tokens[i].size() > skip;
        if (next[i] < end || (longer && end < text.size())) {
          end = next[i];
          skip = special_tokens[i].size();
        }
      }
      if (end > begin) visit(text.substr(begin, end - begin));
      begin = end + skip;
    }
  }
}

io::Json bpe_model(io::Json vocab, io::Json merges) {
  io::Json model = io::Json::object();
  model["type"] = "BPE";
  for (const char* key :
       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    model[key] = nullptr;
  }
  for (const char* key : {"fuse_unk", "byte_fallback", "ignore_merges"}) model[key] = false;
  model["vocab"] = std::move(vocab);
  model["merges"] = std::move(merges);
  return model;
}

TokenizerJson parts_of_characters(io::Json vocab) {
  TokenizerJson parts;
  parts.model = bpe_model(std::move(vocab), io::Json::array());
  parts.decoder = {{"type", "Fuse"}};  // without one the pieces would be joined with spaces
  return parts;
}

void set_space_marks(bool add_prefix, TokenizerJson& parts) {
  const std::string mark(kSpaceMark);
  io::Json normalizers = io::Json::array();
  if (add_prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", mark}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}});
  parts.normalizer = {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}};
  io::Json decoders =
      io::Json::array({{{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}}});
  if (add_prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  parts.decoder = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
}

std::string tokenizer_json(TokenizerJson parts) {
  io::Json& vocabulary = parts.model["vocab"];
  io::Json added = io::Json::array();
  const auto id_of = [&](const std::string& token) -> int64_t {
    if (vocabulary.is_array()) {  // of [token, score]
      for (size_t id = 0; id < vocabulary.size(); ++id) {
        if (vocabulary[id][0] == token) return static_cast<int64_t>(id);
      }
    }
    if (const io::Json* known = io::find(vocabulary, token)) return known->get<int64_t>();
    const auto id = static_cast<int64_t>(vocabulary.size());
    append_member(vocabulary, token, id);
    return id;
  };
  const auto add = [&](const std::string& token, bool special) {
    added.push_back({{"id", id_of(token)},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  };
  for (const std::string& token : parts.special_tokens) add(token, true);
  for (const std::string& token : parts.user_defined) add(token, false);
  io::Json post_processor;
  if (!parts.bos.empty() || !parts.eos.empty()) {
    const auto sequence = [](const char* id, int type) {
      return io::Json({{"Sequence", {{"id", id}, {"type_id", type}}}});
    };
    io::Json single = io::Json::array({sequence("A", 0)});
    io::Json pair = io::Json::array({sequence("A", 0), sequence("B", 1)});
    io::Json special = io::Json::object();
    const auto place = [&](const std::string& token, bool first) {
      if (token.empty()) return;
      const io::Json piece = {{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
      for (io::Json* list : {&single, &pair}) {
        list->insert(first ? list->begin() : list->end(), piece);
      }
      special[token] = {{"id", token},
                        {"ids", io::Json::array({id_of(token)})},
                        {"tokens", io::Json::array({token})}};
    };
    place(parts.bos, true);
    place(parts.eos, false);
    post_processor = {{"type", "TemplateProcessing"},
                      {"single", std::move(single)},
                      {"pair", std::move(pair)},
                      {"special_tokens", std::move(special)}};
  }
  io::Json json = io::Json::object();
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = std::move(added);
  json["normalizer"] = std::move(parts.normalizer);
  json["pre_tokenizer"] = std::move(parts.pre_tokenizer);
  json["post_processor"] = std::move(post_processor);
  json["decoder"] = std::move(parts.decoder);
  json["model"] = std::move(parts.model);
  return json.dump(1) + "\n";
}

std::string characters_json(const Texts& texts, const TokenizerTraining& options) {
  std::map<uint32_t, int64_t> counts;
  for_each_part(texts, options.special_tokens, [&](std::string_view part) {
    for (size_t at = 0; at < part.size();) ++counts[next_code_point(part, at)];
  });
  std::vector<std::pair<uint32_t, int64_t>> kept(counts.begin(), counts.end());
  std::vector<std::string> special = options.special_tokens;
  const auto wanted = kept.size() + special.size();
  const bool limited = options.vocab_size > 0 && wanted > static_cast<size_t>(options.vocab_size);
  if (limited) {
    const int64_t room = options.vocab_size - static_cast<int64_t>(special.size()) - 1;
    if (room < 1) {
      fail_option("vocab_size", "vocab_size = ", options.vocab_size,
                  " leaves no room for characters beside <unk> and ", special.size(),
                  " special tokens; the text has ", kept.size(), " characters");
    }
    std::stable_sort(kept.begin(), kept.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    kept.resize(static_cast<size_t>(room));
    std::sort(kept.begin(), kept.end());
    if (std::find(special.begin(), special.end(), "<unk>") == special.end()) {
      special.insert(special.begin(), "<unk>");
    }
  }
  if (kept.size() + special.size() > limits::kVocab) {
    fail_option("vocab_size", "the text has ", kept.size(),
                " characters; set vocab_size to at most ", limits::kVocab);
  }
  io::Json vocabulary = io::Json::object();
  for (const auto& [code_point, count] : kept) {
    std::string character;
    append_utf8(character, code_point);
    append_member(vocabulary, character, vocabulary.size());
  }
  TokenizerJson parts = parts_of_characters(std::move(vocabulary));
  if (limited) parts.model["unk_token"] = "<unk>";
  parts.special_tokens = special;
  parts.bos = options.bos;
  return tokenizer_json(std::move(parts));
}

std::vector<TokenizerFile> make_tokenizer(const std::vector<std::string_view>& texts,
                                          const TokenizerTraining& options) {
  check_options(options);
  check_texts(texts);
  std::vector<TokenizerFile> files;
  switch (options.kind) {
    case TokenizerKind::kCharacters:
      files.push_back({"tokenizer.json", characters_json(texts, options)});
      break;
    case TokenizerKind::kByteLevelBpe:
      files.push_back({"tokenizer.json", byte_level_bpe_json(texts, options)});
      break;
    case TokenizerKind::kSentencePieceUnigram:
    case TokenizerKind::kSentencePieceBpe:
      files.push_back({"tokenizer.model", sentencepiece_model(texts, options)});
      files.push_back({"tokenizer.json", sentencepiece_json(files[0].content, options.bos)});
      break;
  }
  files.push_back({"tokenizer_config.json", config_json(options)});
  return files;
}

void train_tokenizer(const std::vector<std::string_view>& texts, const TokenizerTraining& options,
                     const std::string& directory) {
  for (const TokenizerFile& file : make_tokenizer(texts, options)) {
    io::write_file_atomically(directory + "/" + file.name, file.content);
  }
}

}  // namespace lumen::text
