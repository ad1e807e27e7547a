#include "lib/text/tokenizer_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/text/bpe.h"
#include "lib/text/pipeline_tokenizer.h"
#include "lib/text/unigram.h"
#include "lib/text/word_piece.h"

namespace lumen::text {
std::pair<std::string_view, std::string_view> split_merge(const io::Json& merge) {
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  fail(ErrorKind::kMalformed, "is ", io::describe(&merge), ", expected two tokens");
}

namespace {

const io::Json& member(const io::Json& json, const char* key) {
  static const io::Json kNull;
  const io::Json* value = io::find(json, key);
  return value == nullptr ? kNull : *value;
}

// {"token": id, …}
void read_vocabulary(const io::Json& model, Vocabulary& vocabulary) {
  const io::Json& map = member(model, "vocab");
  if (!map.is_object()) {
    fail(ErrorKind::kMalformed, "'vocab' is ", io::describe(&map), ", expected an object");
  }
  vocabulary.reserve(map.size());
  for (const auto& [token, id] : map.get_ref<const io::Json::object_t&>()) {
    if (!id.is_number_integer()) {
      fail(ErrorKind::kMalformed, "the id of token ", quoted(token), " is ", io::describe(&id),
           ", expected an integer");
    }
    vocabulary.set(id.get<int64_t>(), token);
  }
}

std::optional<int32_t> token_of(const Vocabulary& vocabulary, const io::Json& model,
                                const char* key) {
  if (io::find_value(model, key) == nullptr) return std::nullopt;
  const int32_t id = vocabulary.find(io::get_string(model, key));
  return id < 0 ? std::nullopt : std::optional(id);
}

void read_merges(const io::Json& model, const Vocabulary& vocabulary, BpeTables& tables) {
  const io::Json& merges = member(model, "merges");
  if (!merges.is_array()) {
    fail(ErrorKind::kMalformed, "'merges' is ", io::describe(&merges), ", expected an array");
  }
  if (merges.size() > limits::kMerges) {
    fail(ErrorKind::kMalformed, merges.size(), " merges, the limit is ", limits::kMerges);
  }
  tables.merges.reserve(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] =
        with_context(str("merge ", rank), [&] { return split_merge(merges[rank]); });
    // The right part loses the prefix that marks the inside of words.
    const std::string_view tail =
        right.substr(std::min(tables.continuing_prefix.size(), right.size()));
    joined.assign(left).append(tail);
    const int32_t left_id = vocabulary.find(left), right_id = vocabulary.find(right);
    const int32_t result = vocabulary.find(joined);
    if (left_id < 0 || right_id < 0 || result < 0) {
      const std::string_view missing = left_id < 0 ? left : right_id < 0 ? right : joined;
      fail(ErrorKind::kMalformed, "merge ", rank, " needs token ", quoted(missing),
           ", which is not in the vocabulary");
    }
    tables.merges.set(left_id, right_id, {static_cast<uint32_t>(rank), result});
  }
}

std::unique_ptr<Model> parse_bpe(const io::Json& model, Pipeline& pipeline) {
  read_vocabulary(model, *pipeline.vocabulary);
  BpeTables tables;
  tables.vocabulary = pipeline.vocabulary.get();
  tables.first_virtual = pipeline.vocabulary->size();
  tables.continuing_prefix = io::get_string(model, "continuing_subword_prefix", "");
  tables.end_of_word_suffix = io::get_string(model, "end_of_word_suffix", "");
  tables.fuse_unk = io::get_bool(model, "fuse_unk", false);
  tables.byte_fallback = io::get_bool(model, "byte_fallback", false);
  tables.ignore_merges = io::get_bool(model, "ignore_merges", false);
  tables.unk = token_of(*pipeline.vocabulary, model, "unk_token");
  read_merges(model, *pipeline.vocabulary, tables);
  PreTokenizer* split = pipeline.pre_tokenizer.get();
  tables.long_words = split == nullptr || !split->splits_words();
  tables.plain_bytes = split != nullptr && tables.continuing_prefix.empty() &&
                       tables.end_of_word_suffix.empty() && covers_bytes(*pipeline.vocabulary) &&
                       split->leave_bytes_plain();
  return std::make_unique<Bpe>(std::move(tables));
}

// The score as Hugging Face tokenizers read it: the decimal digits as an integer, divided by a
// power of ten. That is off by one rounding from the exact value often enough to decide between
// splits of equal score.
double as_serde_reads(double value) {
  char text[40];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0;
  bool fraction = false;
  for (const char* c = text; c != end; ++c) {
    if (*c == '.') {
      fraction = true;
    } else if (*c == 'e') {
      int shift = 0;
      std::from_chars(c[1] == '+' ? c + 2 : c + 1, end, shift);
      exponent += shift;
      break;
    } else if (*c != '-') {
      digits = digits * 10 + static_cast<uint64_t>(*c - '0');
      exponent -= fraction ? 1 : 0;
    }
  }
  constexpr int kExactPower = 22;  // of ten, as a double
  if (exponent > 0 || exponent < -kExactPower) return value;
  double power = 1;
  for (int i = 0; i < -exponent; ++i) power *= 10;
  return std::copysign(static_cast<double>(digits) / power, value);
}

// Contents of the added tokens that are control tokens.
std::unordered_set<std::string_view> special_contents(const io::Json& json) {
  std::unordered_set<std::string_view> contents;
  for (const io::Json& token : member(json, "added_tokens")) {
    const io::Json& content = member(token, "content");
    if (content.is_string() && io::get_bool(token, "special", false)) {
      contents.insert(content.get_ref<const std::string&>());
    }
  }
  return contents;
}

std::unique_ptr<Model> parse_unigram(const io::Json& json, Pipeline& pipeline) {
  const io::Json& model = member(json, "model");
  const std::unordered_set<std::string_view> special = special_contents(json);
  const io::Json& pieces = member(model, "vocab");
  if (!pieces.is_array()) {
    fail(ErrorKind::kMalformed, "'vocab' is ", io::describe(&pieces), ", expected an array");
  }
  UnigramTables tables;
  tables.vocabulary = pipeline.vocabulary.get();
  tables.min_score = std::numeric_limits<double>::infinity();
  pipeline.vocabulary->reserve(pieces.size());
  for (size_t id = 0; id < pieces.size(); ++id) {
    const io::Json& piece = pieces[id];
    if (!piece.is_array() || piece.size() != 2 || !piece[0].is_string() || !piece[1].is_number() ||
        !std::isfinite(piece[1].get<double>())) {
      fail(ErrorKind::kMalformed, "piece ", id, " is ", io::describe(&piece),
           ", expected [token, score]");
    }
    pipeline.vocabulary->set(static_cast<int64_t>(id), piece[0].get_ref<const std::string&>());
    tables.scores.push_back(as_serde_reads(piece[1].get<double>()));
    // Text that spells a control token, where those are not looked for, is text.
    if (!special.contains(piece[0].get_ref<const std::string&>())) {
      tables.pieces.push_back(static_cast<int32_t>(id));
    }
    tables.min_score = std::min(tables.min_score, tables.scores.back());
  }
  if (io::find_value(model, "unk_id") != nullptr) {
    const auto last = static_cast<int64_t>(pieces.size()) - 1;
    tables.unk = static_cast<int32_t>(io::get_int(model, "unk_id", 0, last));
  }
  tables.byte_fallback = io::get_bool(model, "byte_fallback", false);
  return std::make_unique<Unigram>(std::move(tables));
}

std::unique_ptr<Model> parse_word_piece(const io::Json& model, Pipeline& pipeline) {
  read_vocabulary(model, *pipeline.vocabulary);
  WordPiece::Tables tables;
  tables.vocabulary = pipeline.vocabulary.get();
  tables.continuing_prefix = io::get_string(model, "continuing_subword_prefix", "##");
  tables.max_characters =
      static_cast<size_t>(io::get_int(model, "max_input_chars_per_word", 0, 1 << 30, 100));
  const std::string unk = io::get_string(model, "unk_token", "[UNK]");
  tables.unk = pipeline.vocabulary->find(unk);
  if (tables.unk < 0) {
    fail(ErrorKind::kMalformed, "the unknown token ", quoted(unk), " is not in the vocabulary");
  }
  return std::make_unique<WordPiece>(std::move(tables));
}

std::unique_ptr<Model> parse_word_level(const io::Json& model, Pipeline& pipeline) {
  read_vocabulary(model, *pipeline.vocabulary);
  return std::make_unique<WordLevel>(*pipeline.vocabulary,
                                     token_of(*pipeline.vocabulary, model, "unk_token"));
}

// Files from before 2020 do not name the type of their model.
std::string type_of_model(const io::Json& model) {
  if (io::find_value(model, "type") != nullptr) return io::get_string(model, "type");
  if (io::find(model, "merges") != nullptr) return "BPE";
  if (member(model, "vocab").is_array()) return "Unigram";
  if (io::find(model, "max_input_chars_per_word") != nullptr) return "WordPiece";
  return "WordLevel";
}

std::unique_ptr<Model> parse_model(const io::Json& json, Pipeline& pipeline) {
  const io::Json& model = member(json, "model");
  const std::string type = type_of_model(model);
  pipeline.kind = str(type, " (tokenizer.json)");
  return with_context(type, [&] {
    if (type == "BPE") return parse_bpe(model, pipeline);
    if (type == "Unigram") return parse_unigram(json, pipeline);
    if (type == "WordPiece") return parse_word_piece(model, pipeline);
    if (type == "WordLevel") return parse_word_level(model, pipeline);
    fail(ErrorKind::kUnsupported, "unknown model");
  });
}

// Hugging Face gives added tokens the id that the model has for them, else the next free one; the
// file's own number does not count.
class AddedTokenList {
 public:
  explicit AddedTokenList(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  bool contains(const std::string& content) const { return index_.count(content) > 0; }

  void add(AddedToken token) {
    if (token.content.empty()) return;
    const auto [at, is_new] = index_.emplace(token.content, tokens_.size());
    if (!is_new) {
      AddedToken& known = tokens_[at->second];
      token.id = known.id;
      token.special = token.special || known.special;
      known = std::move(token);
      return;
    }
    token.id = vocabulary_.find(token.content);
    if (token.id < 0) token.id = std::max(largest_ + 1, vocabulary_.count());
    largest_ = std::max(largest_, token.id);
    if (static_cast<uint64_t>(token.id) >= limits::kVocab) {
      fail(ErrorKind::kMalformed, "more than ", limits::kVocab, " tokens");
    }
    tokens_.push_back(std::move(token));
  }
  std::vector<AddedToken> take() { return std::move(tokens_); }

 private:
  const Vocabulary& vocabulary_;
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t> index_;
  int32_t largest_ = -1;
};

AddedToken parse_added_token(const io::Json& json) {
  AddedToken token;
  token.content = io::get_string(json, "content");
  if (token.content.size() > limits::kPieceBytes) {
    fail(ErrorKind::kMalformed, "its content has ", token.content.size(), " bytes, the limit is ",
         limits::kPieceBytes);
  }
  token.special = io::get_bool(json, "special", false);
  token.lstrip = io::get_bool(json, "lstrip", false);
  token.rstrip = io::get_bool(json, "rstrip", false);
  token.single_word = io::get_bool(json, "single_word", false);
  token.normalized = io::get_bool(json, "normalized", !token.special);
  return token;
}

// The tokens of the file, then those that only tokenizer_config.json knows.
AddedTokens read_added_tokens(const io::Json& json, const TokenizerConfig& config,
                              const Pipeline& pipeline) {
  AddedTokenList list(*pipeline.vocabulary);
  const io::Json& tokens = member(json, "added_tokens");
  if (!tokens.is_null() && !tokens.is_array()) {
    fail(ErrorKind::kMalformed, "'added_tokens' is ", io::describe(&tokens), ", expected an array");
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    with_context(str("added token ", i), [&] {
      io::get_int(tokens[i], "id", 0, static_cast<int64_t>(limits::kVocab) - 1);
      list.add(parse_added_token(tokens[i]));
    });
  }
  for (AddedToken& token : configured_added_tokens(config)) {
    if (!list.contains(token.content)) list.add(std::move(token));
  }
  return AddedTokens(list.take(), pipeline.normalizer.get());
}

SpecialIds read_special_ids(const TokenizerConfig& config, const Pipeline& pipeline,
                            const io::Json& model) {
  const auto id_of = [&](const std::string& token) -> std::optional<int32_t> {
    if (token.empty()) return std::nullopt;
    if (const AddedToken* added = pipeline.added.find(token)) return added->id;
    const int32_t id = pipeline.vocabulary->find(token);
    return id < 0 ? std::nullopt : std::optional(id);
  };
  SpecialIds special;
  special.bos = id_of(configured_token(config, "bos_token"));
  special.eos = id_of(configured_token(config, "eos_token"));
  special.unk = id_of(configured_token(config, "unk_token"));
  special.pad = id_of(configured_token(config, "pad_token"));
  special.sep = id_of(configured_token(config, "sep_token"));
  special.mask = id_of(configured_token(config, "mask_token"));
  if (!special.unk && member(model, "unk_token").is_string()) {
    special.unk = id_of(io::get_string(model, "unk_token"));
  }
  if (!special.bos && config.config.is_null()) {
    // Without the files beside, the token that is put first is taken for it.
    std::vector<int32_t> ids;
    pipeline.post_processor.apply(ids, true);
    std::vector<int32_t> framed = {-1};
    pipeline.post_processor.apply(framed, true);
    if (!ids.empty() && framed.front() == ids.front()) special.bos = ids.front();
  }
  return special;
}

}  // namespace

std::string configured_token(const TokenizerConfig& config, const char* role) {
  for (const io::Json* json : {&config.config, &config.special_map}) {
    const io::Json* token = io::find_value(*json, role);
    if (token == nullptr) continue;
    if (token->is_string()) return token->get<std::string>();
    if (token->is_object()) return io::get_string(*token, "content", "");
  }
  return "";
}

std::vector<AddedToken> configured_added_tokens(const TokenizerConfig& config) {
  std::vector<AddedToken> tokens;
  constexpr auto kLast = static_cast<int64_t>(limits::kVocab) - 1;
  const io::Json& decoder = member(config.config, "added_tokens_decoder");
  if (decoder.is_object()) {
    for (const auto& [key, json] : decoder.get_ref<const io::Json::object_t&>()) {
      int64_t id = -1;
      if (!parse_number(key, id) || id < 0 || id > kLast) {
        fail(ErrorKind::kMalformed, "tokenizer_config.json: added_tokens_decoder has the key ",
             quoted(key), ", expected a token id");
      }
      AddedToken token = with_context(str("tokenizer_config.json: added token ", id),
                                      [&, &json = json] { return parse_added_token(json); });
      token.id = static_cast<int32_t>(id);
      tokens.push_back(std::move(token));
    }
  }
  if (config.added_tokens.is_object()) {
    for (const auto& [content, id] : config.added_tokens.get_ref<const io::Json::object_t&>()) {
      if (!id.is_number_integer() || id < 0 || id > kLast) {
        fail(ErrorKind::kMalformed, "added_tokens.json: the id of ", quoted(content), " is ",
             io::describe(&id));
      }
      AddedToken token;
      token.content = content;
      token.id = id.get<int32_t>();
      token.normalized = false;
      tokens.push_back(std::move(token));
    }
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

std::shared_ptr<const Tokenizer> parse_tokenizer_json(const io::Json& json,
                                                      const TokenizerConfig& config) {
  const io::Json& model = member(json, "model");
  if (!model.is_object()) {
    fail(ErrorKind::kMalformed, "'model' is ", io::describe(&model), ", expected an object");
  }
  Pipeline pipeline;
  pipeline.vocabulary = std::make_unique<Vocabulary>();
  with_context("normalizer",
               [&] { pipeline.normalizer = parse_normalizer(member(json, "normalizer")); });
  with_context("pre_tokenizer", [&] {
    pipeline.pre_tokenizer = parse_pre_tokenizer(member(json, "pre_tokenizer"));
  });
  with_context("model", [&] { pipeline.model = parse_model(json, pipeline); });
  pipeline.added = read_added_tokens(json, config, pipeline);
  with_context("post_processor",
               [&] { pipeline.post_processor = PostProcessor(member(json, "post_processor")); });
  with_context("decoder", [&] { pipeline.decoders = parse_decoders(member(json, "decoder")); });
  pipeline.special = read_special_ids(config, pipeline, model);
  return std::make_shared<PipelineTokenizer>(std::move(pipeline));
}

}  // namespace lumen::text
